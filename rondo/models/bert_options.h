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

// Of models bert and bert-tiny: what it learns, and the files that it begins with.
struct BertOptions : TransformerOptions, InitOption, VocabularyOption {
  std::string task = {};  // empty: classify
};

// The BERTs; see model_families.h.
struct BertFamily {
  using Options = BertOptions;
  static std::vector<Declaration> declarations();
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

}  // namespace rondo
