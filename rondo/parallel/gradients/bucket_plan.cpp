#include "rondo/parallel/gradients/bucket_plan.h"

#include <numeric>

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

}  // namespace rondo
