#include "rondo/parallel/gradients/bucket.h"

#include <torch/types.h>

#include <cstring>
#include <numeric>

#include "rondo/backend/memory/registered_memory.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// The bucket being filled for one dtype on one device.
struct OpenBucket {
  c10::ScalarType dtype;
  c10::Device device;
  std::vector<std::size_t> parameters = {};
  Bytes size = {};
  bool is_first = true;
};

}  // namespace

BucketPlan plan_buckets(std::span<const GradientSpec> parameters, std::span<const std::size_t> order,
                        Bytes first_bucket, Bytes bucket) {
  BucketPlan plan;
  std::vector<OpenBucket> open;
  for (const std::size_t index : order) {
    const GradientSpec& spec = parameters[index];
    OpenBucket* target = nullptr;
    for (OpenBucket& candidate : open) {
      if (candidate.dtype == spec.dtype && candidate.device == spec.device) target = &candidate;
    }
    if (!target) target = &open.emplace_back(OpenBucket{spec.dtype, spec.device});
    target->parameters.push_back(index);
    target->size = target->size + spec.bytes;
    if (target->size >= (target->is_first ? first_bucket : bucket)) {
      plan.push_back(std::move(target->parameters));
      *target = OpenBucket{spec.dtype, spec.device, {}, {}, false};
    }
  }
  for (OpenBucket& rest : open) {
    if (!rest.parameters.empty()) plan.push_back(std::move(rest.parameters));
  }
  return plan;
}

std::vector<std::size_t> last_first(std::size_t parameters) {
  std::vector<std::size_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

namespace {

at::Tensor part_like(const at::Tensor& parameter, const at::Tensor& flat, std::int64_t offset) {
  if (parameter.is_non_overlapping_and_dense()) {
    return flat.as_strided(parameter.sizes(), parameter.strides(), offset).variable_data();
  }
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()).variable_data();
}

}  // namespace

Bytes Bucket::bytes() const {
  Bytes bytes;
  for (const ModelTensor& parameter : parameters) bytes = bytes + Bytes{parameter.tensor.nbytes()};
  return bytes;
}

std::string Bucket::name() const {
  const std::string first = str("'", parameters.front().name, "'");
  if (parameters.size() == 1) return "gradient " + first;
  return str("gradients ", first, " to '", parameters.back().name, "'");
}

namespace {

// Returns "h.3.up" for "h.3.up.weight", and a name without a layer as it is.
std::string layer_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

}  // namespace

std::string Bucket::layers() const {
  const std::string first = layer_of(parameters.front().name);
  const std::string last = layer_of(parameters.back().name);
  return first == last ? first : str(first, " to ", last);
}

std::vector<Bucket> make_buckets(const std::vector<ModelTensor>& parameters, const BucketPlan& plan) {
  std::vector<Bucket> buckets;
  for (const std::vector<std::size_t>& members : plan) {
    Bucket bucket;
    bucket.numbers = members;
    bucket.index = buckets.size();
    bucket.count = plan.size();
    for (const std::size_t member : members) bucket.parameters.push_back(parameters[member]);
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

std::vector<GradientSpec> gradient_specs(const std::vector<ModelTensor>& parameters) {
  std::vector<GradientSpec> specs;
  for (const ModelTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    specs.push_back({Bytes{tensor.nbytes()}, tensor.scalar_type(), tensor.device()});
  }
  return specs;
}

FlatBucket::FlatBucket(const std::vector<ModelTensor>& parameters, bool registered) {
  std::int64_t elements = 0;
  for (const ModelTensor& parameter : parameters) elements += parameter.tensor.numel();
  const at::TensorOptions options = parameters.front().tensor.options().requires_grad(false);
  flat = registered ? empty_registered({elements}, options) : at::empty({elements}, options);
  std::int64_t offset = 0;
  for (const ModelTensor& parameter : parameters) {
    places.push_back(part_like(parameter.tensor, flat, offset));
    offset += parameter.tensor.numel();
  }
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

std::string place_of(const Group& group) {
  return str("rank ", group.rank(), " of group '", group.name(), "'");
}

}  // namespace rondo
