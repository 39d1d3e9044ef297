#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/nn/model.h"
#include "rondo/options/option.h"

namespace rondo {

// What a model asks of the data that it trains on.
struct DataNeeds {
  std::string kind = {};     // the only kind of data that will do; empty: every kind of `unit`
  std::string kind_by = {};  // the option that chose the kind, for errors: "--task mlm"
  std::string unit = {};     // DatasetInfo::unit; empty: any
  std::optional<std::int64_t> context = {};  // tokens of a sample; empty: the data's own default
  std::string vocabulary_file = {};          // of a bert: vocab.txt or tokenizer.json
  bool lower_case = true;                    // of a bert: its vocabulary has small letters only
  OptionValues options = {};                 // of the kind of data, where the user gives no others
};

// What a model's own options mean for a training: how the model is built, which data it takes, and whose
// weights it begins with.
class ModelSetup {
 public:
  // Of a model that takes any data of `unit`; `settings` are its options as make_model() takes them.
  explicit ModelSetup(nlohmann::json settings = nlohmann::json::object(), std::string unit = {});
  virtual ~ModelSetup() = default;

  const nlohmann::json& settings() const { return settings_; }  // what the options override
  // `config` is the model's default configuration with the user's settings in it. Throws UsageError for
  // options that cannot be, DataError for a damaged folder of --from-pretrained.
  virtual DataNeeds data_needs(const nlohmann::json& config) const;
  // What the model is built of: `of_data`, which the data decides (DatasetInfo::model_config), and the user's
  // settings. `source` names the data in errors. Throws as data_needs(), and UsageError for data that does
  // not fit the model of --from-pretrained.
  virtual nlohmann::json config(const nlohmann::json& of_data, const nlohmann::json& settings,
                                const std::string& source) const;
  virtual std::string init() const { return {}; }  // the folder whose weights it begins with; empty: new ones
  virtual PretrainedNames pretrained_names() const { return {}; }  // of the weights in init()

 private:
  nlohmann::json settings_;
  std::string unit_;
};

// Of a built-in model's name or a model's file. `values` may hold options of others, which are passed over.
// Throws UsageError for a value that cannot be, or a model that there is not.
std::unique_ptr<ModelSetup> model_setup(const std::string& model, const OptionValues& values);

// The built-in models that take any data of this unit, sorted.
std::vector<std::string> models_for(const std::string& unit);

// A batch that the model takes, of values by chance, from its configuration.
struct ExampleBatch {
  at::Tensor input;   // int64 tokens where it has a context or positions, else float32
  at::Tensor target;  // int64 classes or tokens
};

// Throws UsageError for a model whose configuration says neither context and vocabulary nor input_shape and
// classes.
ExampleBatch example_batch(const Model& model, std::int64_t samples);

}  // namespace rondo
