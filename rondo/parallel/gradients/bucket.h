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

// Properties of a parameter that decide which bucket holds its gradient.
struct GradientSpec {
  Bytes bytes;
  c10::ScalarType dtype;
  c10::Device device;
};

// Buckets in the order in which they are reduced. Each is a list of indices into the parameters.
using BucketPlan = std::vector<std::vector<std::size_t>>;

// Assigns parameters to buckets in the given order, as PyTorch's compute_bucket_assignment_by_size does. A
// bucket holds one dtype on one device and never splits a parameter. A bucket closes with the parameter that
// brings it to its limit. The first bucket of each dtype and device has its own limit, `first_bucket`. Closed
// buckets come first, in order of closing, then the open ones in order of their first parameter. The function
// is pure: ranks that pass equal arguments get equal plans.
BucketPlan plan_buckets(std::span<const GradientSpec> parameters, std::span<const std::size_t> order,
                        Bytes first_bucket, Bytes bucket);

// Returns the indices of the parameters in descending order, the usual order of gradients in backward.
std::vector<std::size_t> last_first(std::size_t parameters);

// Parameters of one dtype and device whose gradients are reduced together.
struct Bucket {
  std::vector<ModelTensor> parameters;
  std::vector<std::size_t> numbers;  // indices of `parameters` in the model, in the same order
  std::size_t index = 0;             // position among the buckets of a pass, in launch order
  std::size_t count = 1;             // number of buckets of a pass

  Bytes bytes() const;
  std::string name() const;  // for messages: "gradients 'a' to 'b'"
  // Returns the layers of the first and the last parameter, for traces: "h.3.up", "h.3.norm to h.2.down".
  std::string layers() const;
};

// Returns the buckets of `plan`, in the plan's order.
std::vector<Bucket> make_buckets(const std::vector<ModelTensor>& parameters, const BucketPlan& plan);
// Returns one entry per parameter, for plan_buckets().
std::vector<GradientSpec> gradient_specs(const std::vector<ModelTensor>& parameters);

// A flat tensor that holds the gradients of `parameters` (of one dtype and device) one after the other.
struct FlatBucket {
  // `registered`: allocates memory that peers can access, for any size (backend/memory/registered_memory.h).
  explicit FlatBucket(const std::vector<ModelTensor>& parameters, bool registered = false);

  at::Tensor flat;
  // One view per parameter. A view has the parameter's strides where that is possible, as gradients from
  // autograd have. Views share the bucket's memory but are no views to autograd, because
  // Optimizer::zero_grad() detaches gradients in place, which autograd forbids for views.
  std::vector<at::Tensor> places;
};

// Equals to.copy_(from), with less overhead for small gradients.
void copy_gradient(const at::Tensor& to, const at::Tensor& from);

// Returns the name of the rank for messages: "rank 1 of group 'world'".
std::string place_of(const Group& group);

}  // namespace rondo
