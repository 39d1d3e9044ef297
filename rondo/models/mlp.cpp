#include "rondo/models/mlp.h"

#include <torch/nn.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/config_reader.h"
#include "rondo/models/model_families.h"
#include "rondo/models/model_setup.h"
#include "rondo/nn/linear.h"

namespace rondo {

MlpImpl::MlpImpl(const MlpConfig& config) : config_(config) {
  layers_ = register_module("layers", torch::nn::Sequential());
  std::int64_t width = config.inputs;
  for (const std::int64_t next : config.hidden) {
    layers_->push_back(nn::Linear(width, next));
    width = next;
  }
  layers_->push_back(nn::Linear(width, config.classes));
}

at::Tensor MlpImpl::flatten(const at::Tensor& input) const {
  if (input.dim() < 2 || input.numel() != input.size(0) * config_.inputs) {
    throw UsageError(str("mlp: input of shape [", join(input.sizes(), ", "),
                         "], expected [samples, ...] with ", config_.inputs, " values a sample"));
  }
  return input.reshape({input.size(0), config_.inputs});
}

at::Tensor MlpImpl::forward_layer(std::size_t layer, const at::Tensor& input) {
  // Uses AnyModule, because wrapping rules may have made the layer a unit.
  torch::nn::AnyModule& module = *(layers_->begin() + static_cast<std::ptrdiff_t>(layer));
  const at::Tensor value = module.forward(layer == 0 ? flatten(input) : input);
  return layer + 1 < layers_->size() ? at::relu(value) : value;
}

at::Tensor MlpImpl::forward(const at::Tensor& input) {
  at::Tensor value = input;
  for (std::size_t i = 0; i < layers_->size(); ++i) value = forward_layer(i, value);
  return value;
}

std::vector<ModelLayer> MlpImpl::layers() {
  std::vector<ModelLayer> layers;
  for (std::size_t i = 0; i < layers_->size(); ++i) {
    layers.push_back(make_layer(str("layers.", i), {layers_->ptr(i)},
                                [this, i](const at::Tensor& input) { return forward_layer(i, input); }));
  }
  return layers;
}

nlohmann::json MlpFamily::defaults(const std::string& /*name*/) {
  return {{"input_shape", {1, 28, 28}}, {"hidden", {128, 64}}, {"classes", 10}};
}

BuiltModel MlpFamily::make(const ConfigReader& config) {
  std::int64_t inputs = 1;
  for (const std::int64_t size : config.positives("input_shape")) {
    if (size > kMostSizes / inputs)
      config.fail("input_shape", str("at most ", kMostSizes, " numbers in all"));
    inputs *= size;
  }
  return built(std::make_shared<MlpImpl>(MlpConfig{
      .inputs = inputs, .hidden = config.positives("hidden"), .classes = config.positive("classes")}));
}

std::unique_ptr<ModelSetup> MlpFamily::setup(const Options& /*options*/) {
  return std::make_unique<ModelSetup>(nlohmann::json::object(), "samples");
}

}  // namespace rondo
