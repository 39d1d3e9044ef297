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

// Families with no options of their own, or with one that several families share.

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

// Calls visit(family) for every family of built-in models, one line each. A family is models of one
// architecture that take the same options struct:
//   Options         that struct
//   declarations()  names, summaries and flags of its models; a program that calls only this links no
//   libtorch defaults(name)  the complete configuration of one of them make(config)    builds a model
//   (BuiltModel) setup(options)  makes the settings of a training from the options (ModelSetup)
template <class Visit>
void for_each_model_family(const Visit& visit) {
  visit(MlpFamily());
  visit(ConvnetFamily());
  visit(BertFamily());
  visit(GptFamily());
}

}  // namespace rondo
