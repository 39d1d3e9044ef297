#pragma once

#include <memory>
#include <optional>

#include "rondo/parallel/gradients/transfer.h"

namespace rondo {

// Reduces every large gradient where autograd put it, without a copy; only gradients below 64 KiB, where the
// cost is in the message and not in the bytes, share flat buckets. For engines with registered
// memory (EngineTraits): CPU allocations of that size are shared memory, and each rank reduces its slice of
// the elements straight from and into all ranks' gradients. On one host communication is processor time, so
// what is not copied is gained even when computation hides it.
class InPlaceAllReduce final : public Transfer {
 public:
  InPlaceAllReduce(Bucket bucket, const WeightSource& weight, Group group);

  // Makes the gradient defined.
  void take(std::size_t member) override;
  void take_missing(std::size_t member) override;
  BucketFuture start() override;
  void finish(const at::Tensor& result, const std::vector<bool>& untouched) override;
  void abandon() noexcept override { missing_.clear(); }

 private:
  struct Missing {
    std::size_t member;
    at::Tensor before;  // what `.grad` held
  };

  const Group group_;
  std::optional<FlatBucket> small_;  // none for a large gradient
  std::vector<Missing> missing_;     // in this pass
};

// Which gradients travel together, in the order in which the last one of each bucket is expected; `order` is
// a permutation of all parameters. `bucket_bytes`: of small gradients together; 64 KiB at most.
BucketPlan plan_in_place(const std::vector<ModelTensor>& parameters, std::span<const std::size_t> order,
                         Bytes bucket_bytes = KiB(64));
// Bytes of the flat buckets, which stay as long as the transfers do.
std::uint64_t bytes_beside_gradients(const std::vector<ModelTensor>& parameters);

}  // namespace rondo
