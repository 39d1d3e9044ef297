#include "rondo/parallel/ddp/bucket.h"

#include <torch/types.h>

#include <cstring>

#include "rondo/backend/memory/registered_memory.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

at::Tensor part_like(const at::Tensor& parameter, const at::Tensor& flat, std::int64_t offset) {
  if (parameter.is_non_overlapping_and_dense()) {
    return flat.as_strided(parameter.sizes(), parameter.strides(), offset).variable_data();
  }
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()).variable_data();
}

}  // namespace

std::vector<GradientSpec> gradient_specs(const std::vector<ModelTensor>& parameters) {
  std::vector<GradientSpec> specs;
  for (const ModelTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    specs.push_back({Bytes{tensor.nbytes()}, tensor.scalar_type(), tensor.device()});
  }
  return specs;
}

at::Tensor make_bucket(const std::vector<ModelTensor>& parameters, const std::vector<std::size_t>& members,
                       std::vector<at::Tensor>& places, bool registered) {
  std::int64_t elements = 0;
  for (const std::size_t member : members) elements += parameters[member].tensor.numel();
  const at::Tensor& first = parameters[members.front()].tensor;
  const at::TensorOptions options = first.options().requires_grad(false);
  at::Tensor flat = registered ? empty_registered({elements}, options) : at::empty({elements}, options);
  std::int64_t offset = 0;
  for (const std::size_t member : members) {
    places[member] = part_like(parameters[member].tensor, flat, offset);
    offset += parameters[member].tensor.numel();
  }
  return flat;
}

void copy_gradient(const at::Tensor& to, const at::Tensor& from) {
  const auto plain = [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense() &&
           !tensor.is_conj() && !tensor.is_neg();
  };
  if (plain(to) && plain(from) && to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() &&
      to.strides() == from.strides()) {
    if (to.data_ptr() != from.const_data_ptr())
      std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  } else {
    to.copy_(from);
  }
}

std::string name_range(const std::vector<ModelTensor>& parameters, const std::vector<std::size_t>& members) {
  const std::string first = str("'", parameters[members.front()].name, "'");
  if (members.size() == 1) return "gradient " + first;
  return str("gradients ", first, " to '", parameters[members.back()].name, "'");
}

std::string place_of(const Group& group) {
  return str("rank ", group.rank(), " of group '", group.name(), "'");
}

}  // namespace rondo
