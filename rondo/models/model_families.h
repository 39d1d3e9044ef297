#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/models/bert_options.h"
#include "rondo/models/gpt_options.h"
#include "rondo/models/model_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

class ConfigReader;
class ModelSetup;
struct BuiltModel;

// Families without options of their own, or with an option that several families share.

// The model mlp.
struct MlpFamily {
  using Options = NoOptions;
  static std::vector<Declaration> declarations() {
    return {{"mlp", "fully connected layers, for images and tables"}};
  }
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

// The model convnet.
struct ConvnetFamily {
  using Options = DropoutOption;
  static std::vector<Declaration> declarations() {
    return {{"convnet", "convolutions for images", dropout_table()}};
  }
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

// Calls visit(family) for every family of built-in models, one line each. A family is a set of models of one
// architecture with the same options struct:
//   Options         options struct
//   declarations()  names, summaries and flags of its models; needs no libtorch
//   defaults(name)  complete configuration of one of them
//   make(config)    builds a model (BuiltModel)
//   setup(options)  creates the settings of a training from the options (ModelSetup)
template <class Visit>
void for_each_model_family(const Visit& visit) {
  visit(MlpFamily());
  visit(ConvnetFamily());
  visit(BertFamily());
  visit(GptFamily());
}

}  // namespace rondo
