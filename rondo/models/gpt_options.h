#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/models/shared_model_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

class ConfigReader;
class ModelSetup;
struct BuiltModel;

// Of models gpt, gpt-25m and gpt-tiny. Empty: the model's own value.
struct GptOptions : TransformerOptions, InitOption {
  // A mixture of experts in each block, see GptConfig.
  std::optional<std::int64_t> experts = {};
  std::optional<std::int64_t> experts_per_token = {};
  std::optional<double> capacity_factor = {};
  std::optional<double> balance_loss = {};
};

// The GPTs; see model_families.h.
struct GptFamily {
  using Options = GptOptions;
  static std::vector<Declaration> declarations();
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

}  // namespace rondo
