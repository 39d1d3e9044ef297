#include "rondo/models/model_setup.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/config_reader.h"
#include "rondo/models/model.h"
#include "rondo/models/model_families.h"
#include "rondo/models/model_options.h"

namespace rondo {
namespace {

// Reads the options struct of the declared table, ignoring `values` that it does not have.
template <class Options>
Options options_among(const OptionTable& table, OptionValues values) {
  std::erase_if(values, [&](const auto& value) { return table.find(value.first) == nullptr; });
  return *static_cast<const Options*>(table.read(values).get());
}

// The setup of a model in a file.
class OwnModelSetup final : public ModelSetup {
 public:
  explicit OwnModelSetup(const OwnModelOptions& options) : ModelSetup(settings_of(options)), text_(options) {}

  DataNeeds data_needs(const nlohmann::json& config) const override {
    DataNeeds needs = ModelSetup::data_needs(config);
    needs.vocabulary_file = text_.vocabulary;
    needs.lower_case = !text_.cased;
    return needs;
  }

 private:
  static nlohmann::json settings_of(const OwnModelOptions& options) {
    nlohmann::json settings = nlohmann::json::object();
    if (options.context) settings["context"] = *options.context;
    return settings;
  }

  VocabularyOption text_;
};

std::unique_ptr<ModelSetup> file_setup(const std::string& model, const OptionValues& values) {
  const std::vector<Declaration> declared = declared_model_files();
  const OptionTable& table = find_model_declaration(declared, model)->options;
  return std::make_unique<OwnModelSetup>(options_among<OwnModelOptions>(table, values));
}

}  // namespace

ModelSetup::ModelSetup(nlohmann::json settings, std::string unit)
    : settings_(std::move(settings)), unit_(std::move(unit)) {}

DataNeeds ModelSetup::data_needs(const nlohmann::json& config) const {
  DataNeeds needs;
  needs.unit = unit_;
  if (config.contains("context")) needs.context = ConfigReader("of --model", config).positive("context");
  return needs;
}

nlohmann::json ModelSetup::config(const nlohmann::json& of_data, const nlohmann::json& settings,
                                  const std::string& /*source*/) const {
  nlohmann::json config = of_data;
  config.update(settings);
  return config;
}

std::unique_ptr<ModelSetup> model_setup(const std::string& model, const OptionValues& values) {
  if (model_file(model)) return file_setup(model, values);
  model_config(model);  // throws for an unknown model
  std::unique_ptr<ModelSetup> setup;
  for_each_model_family([&](auto family) {
    using Family = decltype(family);
    const std::vector<Declaration> declared = Family::declarations();
    const Declaration* const found = find_declaration(declared, model);
    if (found == nullptr) return;
    setup = Family::setup(options_among<typename Family::Options>(found->options, values));
  });
  return setup;
}

std::vector<std::string> models_for(const std::string& unit) {
  std::vector<std::string> found;
  for (const std::string& name : model_names()) {
    const DataNeeds needs = model_setup(name, {})->data_needs(model_config(name));
    if (needs.kind.empty() && needs.unit == unit) found.push_back(name);
  }
  return found;
}

namespace {

constexpr std::int64_t kExampleLength = 128;  // default tokens of a bert's texts

// Packs the input for BertInput::unpack.
ExampleBatch bert_example(const ConfigReader& config, std::int64_t samples,
                          std::optional<std::int64_t> given) {
  const std::int64_t vocabulary = config.positive("vocabulary");
  const std::int64_t positions = config.positive("positions");
  if (given.value_or(0) > positions)
    throw UsageError(str("--seq-len ", *given, ": the model has ", positions, " positions"));
  const std::int64_t length = given.value_or(std::min(positions, kExampleLength));
  const at::Tensor tokens = at::randint(vocabulary, {samples, length}, at::kLong);
  const at::Tensor target = config.text("task") == "mlm"
                                ? tokens.clone()
                                : at::randint(config.positive("classes"), {samples}, at::kLong);
  return {at::stack({tokens, at::zeros_like(tokens), at::ones_like(tokens)}, 1), target};
}

}  // namespace

ExampleBatch example_batch(const Model& model, std::int64_t samples, std::optional<std::int64_t> length) {
  const nlohmann::json& config = model.config;
  const ConfigReader reader(model.name, config);
  try {
    if (config.contains("positions") && config.contains("task")) return bert_example(reader, samples, length);
    if (config.contains("context")) {
      const std::int64_t context = reader.positive("context");
      const std::int64_t vocabulary = reader.positive("vocabulary");
      return {at::randint(vocabulary, {samples, context}, at::kLong),
              at::randint(vocabulary, {samples, context}, at::kLong)};
    }
    std::vector<std::int64_t> shape = reader.positives("input_shape");
    shape.insert(shape.begin(), samples);
    const std::int64_t classes = reader.positive("classes");
    return {at::rand(shape), at::randint(classes, {samples}, at::kLong)};
  } catch (const nlohmann::json::exception&) {
    throw UsageError(str("cannot generate data for model ", model.name, ": its settings (", config.dump(),
                         ") have neither context and vocabulary (tokens) nor input_shape and classes; put "
                         "them into the model's settings (--model-config)"));
  }
}

}  // namespace rondo
