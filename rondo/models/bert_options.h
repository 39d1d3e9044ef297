#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/models/model_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

class ConfigReader;
class ModelSetup;
struct BuiltModel;

// Options of the models bert and bert-tiny: the task, and the files of pretrained weights and vocabulary.
struct BertOptions : TransformerOptions, InitOption, VocabularyOption {
  std::string task = {};  // empty: classify
};

// The BERTs; see model_families.h.
struct BertFamily {
  using Options = BertOptions;
  static std::vector<Declaration> declarations() {
    OptionsOf<Options> table;
    table.begin_group("Model");
    table.include(transformer_table());
    table.add("task", &Options::task,
              "classify labelled text, or mlm: predict hidden tokens; default classify",
              one_of({"classify", "mlm"}));
    table.include(init_table());
    table.include(vocabulary_table());
    return {{"bert", "BERT's base size, for classes of texts or hidden tokens", table},
            {"bert-tiny", "the smallest of BERT's published sizes", table}};
  }
  static nlohmann::json defaults(const std::string& name);
  static BuiltModel make(const ConfigReader& config);
  static std::unique_ptr<ModelSetup> setup(const Options& options);
};

}  // namespace rondo
