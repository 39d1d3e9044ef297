#pragma once

#include <span>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/gradient_weight.h"
#include "rondo/parallel/schedule/bucket_future.h"

namespace rondo {

// Reduces every large gradient where autograd put it, without a copy; only gradients below 64 KiB, where the
// cost is in the message and not in the bytes, share flat buckets. For engines with registered
// memory (EngineTraits): CPU allocations of that size are shared memory, and each rank reduces its slice of
// the elements straight from and into all ranks' gradients. On one host communication is processor time, so
// what is not copied is gained even when computation hides it. One thread.
class InPlaceBuckets {
 public:
  // `order`: in which gradients are expected, a permutation of all parameters. `bucket_bytes`: of a flat
  // bucket; 64 KiB at most.
  InPlaceBuckets(const std::vector<ModelTensor>& parameters, Group group, std::span<const std::size_t> order,
                 Bytes bucket_bytes = KiB(64));

  // Bytes of the flat buckets, which stay as long as the object does.
  static std::uint64_t flat_bytes(const std::vector<ModelTensor>& parameters);

  // By bucket, in the order in which the last gradient of each is expected: the numbers of its parameters.
  const std::vector<std::vector<std::size_t>>& members() const { return members_; }
  Bytes bytes(std::size_t bucket) const;

  // The parameter's `.grad` is complete, or there is none, which is zero: takes it to where it travels from.
  void take(std::size_t parameter);
  // Begins the weighted sum of a bucket all of whose gradients were taken.
  BucketFuture start(std::size_t bucket, const GradientWeight& weight);
  // The bucket is reduced: brings the sums to `.grad`.
  void bring_back(std::size_t bucket);

 private:
  const std::vector<ModelTensor> parameters_;
  const Group group_;
  std::vector<std::vector<std::size_t>> members_;
  std::vector<at::Tensor> flats_;   // by bucket; undefined for a large gradient
  std::vector<at::Tensor> places_;  // by parameter: its part of a flat bucket
};

}  // namespace rondo
