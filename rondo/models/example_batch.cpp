#include "rondo/models/example_batch.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/config_reader.h"

namespace rondo {
namespace {

constexpr std::int64_t kExampleLength = 128;  // tokens of a bert's texts

// Packed as BertInput::unpack takes it.
ExampleBatch bert_example(const ConfigReader& config, std::int64_t samples) {
  const std::int64_t vocabulary = config.positive("vocabulary");
  const std::int64_t length = std::min(config.positive("positions"), kExampleLength);
  const at::Tensor tokens = at::randint(vocabulary, {samples, length}, at::kLong);
  const at::Tensor target = config.text("task") == "mlm"
                                ? tokens.clone()
                                : at::randint(config.positive("classes"), {samples}, at::kLong);
  return {at::stack({tokens, at::zeros_like(tokens), at::ones_like(tokens)}, 1), target};
}

}  // namespace

ExampleBatch example_batch(const Model& model, std::int64_t samples) {
  const nlohmann::json& config = model.config;
  const ConfigReader reader(model.name, config);
  try {
    if (config.contains("positions") && config.contains("task")) return bert_example(reader, samples);
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
    throw UsageError(str("no data can be made up for model ", model.name, ": its settings (", config.dump(),
                         ") have neither context and vocabulary (tokens) nor input_shape and classes; put "
                         "them into the model's settings (--model-config)"));
  }
}

}  // namespace rondo
