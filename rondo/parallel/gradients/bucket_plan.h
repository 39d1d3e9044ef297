#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <span>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {

// What matters of a parameter for placing its gradient.
struct GradientSpec {
  Bytes bytes;
  c10::ScalarType dtype;
  c10::Device device;
};

// Which parameters share a bucket; buckets in the order in which they are reduced, each a list of indices
// into the parameters.
using BucketPlan = std::vector<std::vector<std::size_t>>;

// Fills buckets in the given order of parameters (as PyTorch's compute_bucket_assignment_by_size): a bucket
// holds one dtype on one device, divides no parameter, and is closed by the parameter that brings it to its
// limit. The first bucket of each dtype and device has its own limit. Closed buckets come in order of
// closing, then those left open in order of their first parameter. A pure function of its arguments, so ranks
// that agree on them agree on the plan.
BucketPlan plan_buckets(std::span<const GradientSpec> parameters, std::span<const std::size_t> order,
                        Bytes first_bucket, Bytes bucket);

// The order of parameters in which backward passes mostly give gradients: the last one first.
std::vector<std::size_t> last_first(std::size_t parameters);

}  // namespace rondo
