#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "rondo/backend/group.h"
#include "rondo/base/time.h"

namespace rondo {

// Communication inside a forward pass whose backward pass communicates too, for layers that are divided among
// the ranks of a group. Each function is collective over `group` in forward and backward, blocks, and is
// differentiable once. For a group of at most one rank it returns its input. `dimension` counts from 0.
// Sources: Megatron-LM (arXiv 1909.08053), its sequence parallelism (2205.05198).

// Returns the input, which is the same on all ranks; backward sums the ranks' gradients. Used before a
// column-parallel layer.
at::Tensor copy_to_ranks(const at::Tensor& input, const Group& group);
// Returns the sum of the ranks' inputs; backward passes the gradient, the same on all ranks, unchanged. Used
// after a row-parallel layer.
at::Tensor sum_over_ranks(const at::Tensor& input, const Group& group);
// Concatenates the ranks' inputs along `dimension`, for a following computation that is the same on all
// ranks; backward returns this rank's part of the gradient. All inputs have one shape.
at::Tensor gather_from_ranks(const at::Tensor& input, std::int64_t dimension, const Group& group);
// Returns this rank's part along `dimension` of an input that is the same on all ranks; backward concatenates
// the gradients. Throws UsageError if the number of ranks does not divide the length, naming both.
at::Tensor own_part(const at::Tensor& input, std::int64_t dimension, const Group& group);
// Concatenates the ranks' inputs along `dimension`, for a following computation that differs between ranks;
// backward sums the ranks' gradients and returns this rank's part. Used for a divided sequence before a
// column-parallel layer.
at::Tensor all_gather_parts(const at::Tensor& input, std::int64_t dimension, const Group& group);
// Returns this rank's part along `dimension` of the sum of the ranks' inputs; backward concatenates the
// gradients. Used for a divided sequence after a row-parallel layer. Throws as own_part() does.
at::Tensor reduce_scatter_parts(const at::Tensor& input, std::int64_t dimension, const Group& group);

// Returns whether `group` has other ranks.
bool has_peers(const Group& group);

// Nanoseconds that passes spent blocked in the functions above. Any thread.
using CommunicationClock = std::shared_ptr<std::atomic<std::int64_t>>;
// Returns the calling thread's clock: its own, or that of the innermost CommunicationClockScope.
CommunicationClock communication_clock();
// Returns the time on this thread's clock and resets the clock.
Duration take_parallel_communication_time();

// A scope in which the calling thread adds to another thread's clock. Autograd runs the backward pass of a
// device on a thread of its own. That thread adds its communication, including recomputation, to the clock of
// the thread that ran the forward pass.
class CommunicationClockScope {
 public:
  // Directs this thread's time to `clock`.
  explicit CommunicationClockScope(CommunicationClock clock);
  ~CommunicationClockScope();
  CommunicationClockScope(const CommunicationClockScope&) = delete;
  CommunicationClockScope& operator=(const CommunicationClockScope&) = delete;

 private:
  CommunicationClock outer_;
};

// A timer that adds its lifetime to this thread's clock.
class ParallelCommunication {
 public:
  ParallelCommunication();  // starts the timer
  ~ParallelCommunication();
  ParallelCommunication(const ParallelCommunication&) = delete;
  ParallelCommunication& operator=(const ParallelCommunication&) = delete;

 private:
  std::int64_t begin_;
};

// Returns the sum of the cross entropies of `target`, int64 [...], for logits whose classes are divided among
// the ranks of `group` in equal parts, in rank order: [..., classes / ranks]. Ignored targets
// (kIgnoredTarget) contribute 0. Ranks exchange three numbers for each row: the maximum, the sum of
// exponentials and the target's logit. No rank gets all logits of a row (Shoeybi et al., Megatron-LM,
// 1909.08053). The result is a scalar in float32 or wider, the same on all ranks, differentiable once. Only
// forward is collective. Throws UsageError for shapes that do not fit and for a target that is not a class.
at::Tensor cross_entropy_of_parts(const at::Tensor& logits, const at::Tensor& target, const Group& group);

}  // namespace rondo
