#include "rondo/nn/linear.h"

#include <torch/types.h>

namespace rondo::nn {

at::Tensor LinearImpl::forward(const at::Tensor& input) { return at::linear(input, weight, bias); }

std::shared_ptr<torch::nn::Module> LinearImpl::clone(const std::optional<c10::Device>& device) const {
  return clone_derived<torch::nn::LinearImpl>(*this, device);
}

}  // namespace rondo::nn
