#include "rondo/models/example_batch.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::int64_t kExampleLength = 128;  // tokens of a bert's texts

// Packed as BertInput::unpack takes it.
ExampleBatch bert_example(const nlohmann::json& config, std::int64_t samples) {
  const auto vocabulary = config.at("vocabulary").get<std::int64_t>();
  const std::int64_t length = std::min(config.at("positions").get<std::int64_t>(), kExampleLength);
  const at::Tensor tokens = at::randint(vocabulary, {samples, length}, at::kLong);
  const at::Tensor target = config.at("task") == "mlm"
                                ? tokens.clone()
                                : at::randint(config.at("classes").get<std::int64_t>(), {samples}, at::kLong);
  return {at::stack({tokens, at::zeros_like(tokens), at::ones_like(tokens)}, 1), target};
}

}  // namespace

ExampleBatch example_batch(const Model& model, std::int64_t samples) {
  const nlohmann::json& config = model.config;
  try {
    if (config.contains("positions") && config.contains("task")) return bert_example(config, samples);
    if (config.contains("context")) {
      const auto context = config.at("context").get<std::int64_t>();
      const auto vocabulary = config.at("vocabulary").get<std::int64_t>();
      return {at::randint(vocabulary, {samples, context}, at::kLong),
              at::randint(vocabulary, {samples, context}, at::kLong)};
    }
    auto shape = config.at("input_shape").get<std::vector<std::int64_t>>();
    shape.insert(shape.begin(), samples);
    const auto classes = config.at("classes").get<std::int64_t>();
    return {at::rand(shape), at::randint(classes, {samples}, at::kLong)};
  } catch (const nlohmann::json::exception&) {
    throw UsageError(str("no data can be made up for model ", model.name, ": its settings (", config.dump(),
                         ") have neither context and vocabulary (tokens) nor input_shape and classes; give "
                         "them with --model-config"));
  }
}

}  // namespace rondo
