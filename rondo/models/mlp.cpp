#include "rondo/models/mlp.h"

#include <torch/nn.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

MlpImpl::MlpImpl(const MlpConfig& config) : config_(config) {
  layers_ = register_module("layers", torch::nn::ModuleList());
  std::int64_t width = config.inputs;
  for (const std::int64_t next : config.hidden) {
    layers_->push_back(torch::nn::Linear(width, next));
    width = next;
  }
  layers_->push_back(torch::nn::Linear(width, config.classes));
}

at::Tensor MlpImpl::forward(const at::Tensor& input) {
  if (input.dim() < 2 || input.numel() != input.size(0) * config_.inputs) {
    throw UsageError(str("mlp: input of shape [", join(input.sizes(), ", "),
                         "], expected [samples, ...] with ", config_.inputs, " values a sample"));
  }
  at::Tensor value = input.reshape({input.size(0), config_.inputs});
  for (std::size_t i = 0; i < layers_->size(); ++i) {
    value = layers_->at<torch::nn::LinearImpl>(i).forward(value);
    if (i + 1 < layers_->size()) value = at::relu(value);
  }
  return value;
}

}  // namespace rondo
