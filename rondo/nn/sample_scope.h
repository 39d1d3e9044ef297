#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace rondo {

// Which samples a forward pass computes on, in terms that do not depend on how samples are spread over ranks.
struct SampleInfo {
  std::uint64_t seed = 0;                  // of the training
  std::uint64_t step = 0;                  // optimizer steps done before
  std::vector<std::int64_t> indices = {};  // of each row of the batch: its sample's number in the data set
  // What this rank's gradients of the step count in the combined gradient, in any unit that all ranks share:
  // LocalBatch::samples.
  double weight = 1;
  // What a loss that a module adds by itself is multiplied with before its backward pass: as much as the mean
  // loss of the batch is, for its share of the step and the scaling of gradients.
  double loss_scale = 1;
};

// Tells the modules that this thread calls while the object lives which samples they see: SampleDropout draws
// by them, SyncBatchNorm weighs by them. The trainer makes one around the forward and backward pass of each
// batch; a loop of one's own does the same:
//
//   const rondo::SampleScope scope({.seed = seed, .step = step, .indices = batch.indices});
//   loss_function(model->forward(batch.input), batch.target).mean.backward();
//
// Scopes nest; the innermost counts. Whatever repeats a forward pass on another thread (autograd's, to
// compute activations again) takes current() in the first pass and makes a scope of it around the second.
class SampleScope {
 public:
  explicit SampleScope(SampleInfo info);  // until the object ends, on this thread
  // For what current() gave elsewhere; null is no scope.
  explicit SampleScope(std::shared_ptr<const SampleInfo> info);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

  // The innermost scope's on this thread; null outside of any.
  static std::shared_ptr<const SampleInfo> current();

 private:
  std::shared_ptr<const SampleInfo> outer_;
};

}  // namespace rondo
