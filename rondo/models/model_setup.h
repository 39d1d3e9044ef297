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

// Requirements of a model for its data.
struct DataNeeds {
  std::string kind = {};                     // the only valid kind of data; empty: every kind with `unit`
  std::string kind_by = {};                  // option that chose the kind, for errors: "--task mlm"
  std::string unit = {};                     // DatasetInfo::unit; empty: any
  std::optional<std::int64_t> context = {};  // tokens of a sample; empty: the data's default
  std::string vocabulary_file = {};          // for a bert: vocab.txt or tokenizer.json
  bool lower_case = true;                    // for a bert: whether its vocabulary is lower-case
  OptionValues options = {};  // option values for the data that apply unless the user sets them
};

// The effect of a model's own options on a training: how the model is built, which data it takes, and its
// initial weights.
class ModelSetup {
 public:
  // For a model that takes any data of `unit`; `settings` are its options as make_model() takes them.
  explicit ModelSetup(nlohmann::json settings = nlohmann::json::object(), std::string unit = {});
  virtual ~ModelSetup() = default;

  const nlohmann::json& settings() const { return settings_; }  // overrides by the options
  // Returns the requirements for `config`, the default configuration with the user's settings. Throws
  // UsageError for invalid options, DataError for a damaged folder of --from-pretrained.
  virtual DataNeeds data_needs(const nlohmann::json& config) const;
  // Returns the configuration of the model: `of_data`, the entries that the data determines
  // (DatasetInfo::model_config), and the user's settings. `source` names the data in errors. Throws as
  // data_needs(), and UsageError for data that does not fit the model of --from-pretrained.
  virtual nlohmann::json config(const nlohmann::json& of_data, const nlohmann::json& settings,
                                const std::string& source) const;
  virtual std::string init() const { return {}; }  // folder of initial weights; empty: new ones
  virtual PretrainedNames pretrained_names() const { return {}; }  // names of the weights in init()

 private:
  nlohmann::json settings_;
  std::string unit_;
};

// Creates the setup of a built-in model or a model's file. Ignores options of other models in `values`.
// Throws UsageError for an invalid value or an unknown model.
std::unique_ptr<ModelSetup> model_setup(const std::string& model, const OptionValues& values);

// Returns the built-in models that take any data of this unit, sorted.
std::vector<std::string> models_for(const std::string& unit);

// A random batch that a model takes.
struct ExampleBatch {
  at::Tensor input;   // int64 tokens for a model with context or positions, else float32
  at::Tensor target;  // int64 classes or tokens
};

// Creates a batch from the model's configuration. Samples of a bert have `length` tokens, by default 128 or
// all of its positions if these are fewer; other models have their own length. Throws UsageError if the
// configuration has neither context and vocabulary nor input_shape and classes, and for a bert with fewer
// positions than `length`.
ExampleBatch example_batch(const Model& model, std::int64_t samples, std::optional<std::int64_t> length = {});

}  // namespace rondo
