#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/models/shared_model_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

class ConfigReader;
class ModelSetup;
struct BuiltModel;

// The model convnet; see model_families.h.
struct ConvnetFamily {
  using Options = DropoutOption;
  static std::vector<Declaration> declarations();
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

}  // namespace rondo
