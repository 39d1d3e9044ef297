#include "rondo/strategy/model_parts.h"

#include <torch/types.h>

namespace rondo {

at::Tensor UndividedModel::assemble(const std::string& /*parameter*/, const at::Tensor& part) { return part; }

at::Tensor UndividedModel::part_of(const std::string& /*parameter*/, const at::Tensor& whole) {
  return whole;
}

at::Tensor UndividedModel::whole_parameter(const std::string& parameter) {
  return module_.named_parameters()[parameter].detach();
}

std::vector<std::int64_t> UndividedModel::whole_sizes(const std::string& parameter) {
  return module_.named_parameters()[parameter].sizes().vec();
}

void UndividedModel::set_parameter(const std::string& parameter, const at::Tensor& whole) {
  const at::NoGradGuard no_grad;
  module_.named_parameters()[parameter].copy_(whole);
}

std::vector<ModelTensor> UndividedModel::buffers() { return tensors_of(module_).buffers; }

}  // namespace rondo
