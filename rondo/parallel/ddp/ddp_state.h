#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/gradient_reducer.h"
#include "rondo/parallel/ddp/join.h"
#include "rondo/parallel/gradients/step_announcement.h"

namespace rondo {

// State of a DistributedDataParallel. Used by the training thread only.
struct DistributedDataParallel::State {
  ModelTensors tensors;
  Group group;
  DdpOptions options;
  std::shared_ptr<StepAnnouncement> announcement;  // null on a group of one rank, as is `reducer`
  std::shared_ptr<GradientReducer> reducer;
  BackwardTrace no_trace = {};
  bool buffers_due = true;                   // whether the next forward pass broadcasts buffers
  std::optional<JoinOptions> join = {};      // set inside with_join
  std::optional<std::int64_t> samples = {};  // inside with_join: number that the next forward pass announces
};

// Throws MismatchError with the ranks that are no longer active. Implements throw_on_early_termination of
// with_join.
void throw_if_a_rank_has_ended(StepAnnouncement& announcement);

// Restores this rank's entry of `of_ranks`, the results of communication_state() on all ranks, in rank order.
// Returns the reason why the state was rejected, as "is of 3 ranks, this run has 2"; empty on success. Does
// not communicate.
std::string restore_communication(DistributedDataParallel& ddp, const std::vector<CommState>& of_ranks);

}  // namespace rondo
