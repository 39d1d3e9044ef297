#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/base/bytes.h"
#include "rondo/nn/model_tensors.h"

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

// Parameters of one dtype and device whose gradients travel together.
struct Bucket {
  std::vector<ModelTensor> parameters;
  std::vector<std::size_t> numbers;  // side by side: the parameters' in the model
  std::size_t index = 0;             // among the buckets of a pass, in the order in which they go
  bool is_last = false;              // of these

  Bytes bytes() const;
  std::string name() const;  // for messages: "gradients 'a' to 'b'"
};

// The buckets of a plan, in its order.
std::vector<Bucket> make_buckets(const std::vector<ModelTensor>& parameters, const BucketPlan& plan);
// One entry a parameter, for plan_buckets.
std::vector<GradientSpec> gradient_specs(const std::vector<ModelTensor>& parameters);

// A flat tensor that holds the gradients of `parameters` (of one dtype and device) one after the other.
struct FlatBucket {
  // `registered`: peers can reach it, whatever its size (backend/memory/registered_memory.h).
  explicit FlatBucket(const std::vector<ModelTensor>& parameters, bool registered = false);

  at::Tensor flat;
  // By parameter, its part: strided like the parameter where that is possible, so that autograd and
  // optimizers find the layout they would have chosen. Parts share memory with the bucket but are no views in
  // autograd's eyes: Optimizer::zero_grad detaches gradients in place, which views refuse.
  std::vector<at::Tensor> places;
};

// to.copy_(from), which for the small gradients of a small model takes longer than the bytes do.
void copy_gradient(const at::Tensor& to, const at::Tensor& from);

// For messages: "rank 1 of group 'world'".
std::string place_of(const Group& group);

}  // namespace rondo
