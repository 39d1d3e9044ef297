#pragma once

#include "rondo/parallel/gradients/transfer.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// Copies gradients into a flat bucket and all-reduces it, or hands it to a communication hook. Works with any
// c10d backend. Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
// VLDB 2020.
class FlatAllReduce final : public Transfer {
 public:
  // `hook`, which outlives the object, replaces the all-reduce if its `run` is set. `as_view`: `.grad`
  // becomes a view of the bucket.
  FlatAllReduce(Bucket bucket, const WeightSource& weight, Group group, const CommHook& hook, bool as_view);

  void begin() override { factor_.reset(); }
  void take(std::size_t member) override;
  void take_missing(std::size_t member) override;
  BucketFuture start() override;
  void finish(const at::Tensor& result, const std::vector<bool>& untouched) override;
  void abandon() noexcept override;

 private:
  // Whether the engine divides, after an addition that is the same for every engine.
  bool engine_divides() const { return !hook_.run && in_rank_order_ && weight().equal; }
  // The number that multiplies gradients on their way into the bucket.
  const at::Tensor& factor();
  // A hook's result becomes the bucket.
  void take_result(const at::Tensor& result);
  void copy_in(std::size_t member);
  void copy_out(std::size_t member);
  at::Tensor& grad(std::size_t member) const { return bucket().parameters[member].tensor.mutable_grad(); }

  const Group group_;
  const CommHook& hook_;
  const bool as_view_;
  const bool in_rank_order_;  // the engine is deterministic: it divides as every such engine does
  FlatBucket memory_;
  at::Tensor factor_;              // of this pass, once known: a scalar
  std::vector<at::Tensor> saved_;  // by member: gradients that finish may have to restore
};

}  // namespace rondo
