#include "rondo/nn/gradient_values.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

namespace rondo {

at::Tensor gradient_values(const at::Tensor& parameter) {
  at::Tensor gradient = parameter.grad();
  if (!gradient.defined() || !gradient.is_sparse()) return gradient;
  gradient = gradient.coalesce();
  parameter.mutable_grad() = gradient;
  return gradient._values();
}

double clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm) {
  std::vector<at::Tensor> clipped;
  for (const at::Tensor& parameter : parameters) {
    clipped.push_back(parameter);
    if (!parameter.grad().defined() || !parameter.grad().is_sparse()) continue;
    // torch's function changes an alias of the gradient: that is the same memory for dense tensors alone.
    const at::Tensor values = gradient_values(parameter);
    clipped.back() = at::empty_like(values);
    clipped.back().mutable_grad() = values;
  }
  return torch::nn::utils::clip_grad_norm_(clipped, max_norm);
}

}  // namespace rondo
