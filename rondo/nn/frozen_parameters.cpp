#include "rondo/nn/frozen_parameters.h"

#include <torch/nn/module.h>

#include "rondo/nn/model_tensors.h"

namespace rondo {

FrozenParameters::FrozenParameters(const torch::nn::Module& module)
    : parameters_(distinct_parameters(module)) {
  std::erase_if(parameters_, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  for (const at::Tensor& parameter : parameters_) parameter.set_requires_grad(false);
}

FrozenParameters::~FrozenParameters() {
  for (const at::Tensor& parameter : parameters_) parameter.set_requires_grad(true);
}

}  // namespace rondo
