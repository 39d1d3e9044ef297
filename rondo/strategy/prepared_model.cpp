#include "rondo/strategy/prepared_model.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include "rondo/nn/model_tensors.h"

namespace rondo {

double PreparedModel::clip_gradients(double max_norm) {
  return torch::nn::utils::clip_grad_norm_(distinct_parameters(module()), max_norm);
}

at::Tensor PreparedModel::assemble(const std::string& /*parameter*/, const at::Tensor& part) { return part; }

at::Tensor PreparedModel::part_of(const std::string& /*parameter*/, const at::Tensor& whole) { return whole; }

void PreparedModel::set_parameter(const std::string& parameter, const at::Tensor& whole) {
  const at::NoGradGuard no_grad;
  module().named_parameters()[parameter].copy_(whole);
}

std::vector<std::int64_t> PreparedModel::whole_sizes(const std::string& parameter) {
  return module().named_parameters()[parameter].sizes().vec();
}

std::vector<ModelTensor> PreparedModel::buffers() { return tensors_of(module()).buffers; }

}  // namespace rondo
