#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "rondo/backend/group.h"
#include "rondo/base/time.h"

namespace rondo {

// Communication inside a forward pass whose backward pass communicates too: what layers that are divided
// among the ranks of a group are built of. Each is collective over `group`, forward and backward, blocking,
// and differentiable once; on a group of one rank, or none, it gives its input back. `dimension` counts from
// 0. Sources: Megatron-LM (arXiv 1909.08053), its sequence parallelism (2205.05198).

// The input as it is, the same on all ranks; the ranks' gradients are added. Before a column-parallel layer.
at::Tensor copy_to_ranks(const at::Tensor& input, const Group& group);
// The sum of the ranks' inputs; the gradient as it is, the same on all ranks. After a row-parallel layer.
at::Tensor sum_over_ranks(const at::Tensor& input, const Group& group);
// The ranks' inputs one after the other along `dimension`, for what all ranks do alike: of the gradient, the
// same on all ranks, the own part. All inputs have one shape.
at::Tensor gather_from_ranks(const at::Tensor& input, std::int64_t dimension, const Group& group);
// Of an input that is the same on all ranks the own part along `dimension`; all parts of the gradient. Throws
// UsageError for a length that the ranks do not divide, naming both.
at::Tensor own_part(const at::Tensor& input, std::int64_t dimension, const Group& group);
// The ranks' inputs one after the other along `dimension`, for what every rank does differently: the sum of
// the ranks' gradients, of it the own part. Where a column-parallel layer follows a divided sequence.
at::Tensor all_gather_parts(const at::Tensor& input, std::int64_t dimension, const Group& group);
// The sum of the ranks' inputs, of it the own part along `dimension`; all parts of the gradient. Where a
// divided sequence follows a row-parallel layer. Throws as own_part() does.
at::Tensor reduce_scatter_parts(const at::Tensor& input, std::int64_t dimension, const Group& group);

// Whether `group` has other ranks to communicate with.
bool has_peers(const Group& group);

// Nanoseconds that passes have stood still in the functions above. Any thread.
using CommunicationClock = std::shared_ptr<std::atomic<std::int64_t>>;
// The calling thread's clock: its own, or the one of the innermost CommunicationClockScope.
CommunicationClock communication_clock();
// Returns the time on this thread's clock and sets the clock to zero.
Duration take_parallel_communication_time();

// Makes the calling thread count on another thread's clock while the object lives. Autograd runs the backward
// pass of a device on a thread of its own: it counts, and repeats forward passes, on the clock of the thread
// that ran the forward pass.
class CommunicationClockScope {
 public:
  // From now on the thread counts on `clock`.
  explicit CommunicationClockScope(CommunicationClock clock);
  ~CommunicationClockScope();
  CommunicationClockScope(const CommunicationClockScope&) = delete;
  CommunicationClockScope& operator=(const CommunicationClockScope&) = delete;

 private:
  CommunicationClock outer_;
};

// Adds the time until its end to this thread's clock.
class ParallelCommunication {
 public:
  ParallelCommunication();  // from now on
  ~ParallelCommunication();
  ParallelCommunication(const ParallelCommunication&) = delete;
  ParallelCommunication& operator=(const ParallelCommunication&) = delete;

 private:
  std::int64_t begin_;
};

// The sum of the cross entropies of `target`, int64 [...], and of logits of which every rank of `group` has
// an equal part of the classes, in rank order: [..., classes / ranks]. Ignored targets (kIgnoredTarget) count
// nothing. What travels is three numbers a row: the maximum, the sum of exponentials, the target's logit; no
// rank has all logits of a row (Shoeybi et al., Megatron-LM, 1909.08053). A scalar, the same on all ranks, in
// float32 or wider; differentiable once. Collective, forward only. Throws UsageError for shapes that do not
// fit and for a target that is no class.
at::Tensor cross_entropy_of_parts(const at::Tensor& logits, const at::Tensor& target, const Group& group);

}  // namespace rondo
