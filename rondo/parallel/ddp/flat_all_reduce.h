#pragma once

#include "rondo/parallel/gradients/transfer.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// A transfer that copies gradients into a flat bucket and all-reduces it, or passes it to a communication
// hook. Works with any c10d backend. Source: Li et al., "PyTorch Distributed: Experiences on Accelerating
// Data Parallel Training", VLDB 2020.
class FlatAllReduce final : public Transfer {
 public:
  // `hook` must outlive the object; it replaces the all-reduce if its `run` is set. `as_view`: `.grad`
  // becomes a view of the bucket.
  FlatAllReduce(Bucket bucket, const WeightSource& weight, Group group, const CommHook& hook, bool as_view);

  void begin() override { factor_.reset(); }
  void take(std::size_t member) override;
  void take_missing(std::size_t member) override;

 private:
  std::vector<TransferStep> steps(std::size_t segment) override;
  BucketFuture start();
  void store(const at::Tensor& result, const std::vector<bool>& untouched) override;
  void discard() noexcept override;
  // Returns true if the engine divides, after a sum in the same order on every engine.
  bool engine_divides() const { return !hook_.run && in_rank_order_ && weight().equal; }
  // Returns the scalar by which gradients are multiplied when they are copied into the bucket.
  const at::Tensor& factor();
  // Copies a hook's result into the bucket.
  void take_result(const at::Tensor& result);
  void copy_in(std::size_t member);
  void copy_out(std::size_t member);
  at::Tensor& grad(std::size_t member) const { return bucket().parameters[member].tensor.mutable_grad(); }

  const Group group_;
  const CommHook& hook_;
  const bool as_view_;
  // Whether the engine is deterministic, and therefore divides like all such engines.
  const bool in_rank_order_;
  FlatBucket memory_;
  at::Tensor factor_;              // scalar of the current pass, undefined until factor() is called
  std::vector<at::Tensor> saved_;  // by member: gradients that finish() may have to restore
};

}  // namespace rondo
