#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class ConfigReader;
class ModelSetup;
struct BuiltModel;

// The model mlp; see model_families.h.
struct MlpFamily {
  using Options = NoOptions;
  static std::vector<Declaration> declarations();
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

}  // namespace rondo
