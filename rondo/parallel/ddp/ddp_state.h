#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/gradient_reducer.h"
#include "rondo/parallel/ddp/join.h"
#include "rondo/parallel/gradients/step_announcement.h"

namespace rondo {

// Used by the training thread only.
struct DistributedDataParallel::State {
  ModelTensors tensors;
  Group group;
  DdpOptions options;
  std::shared_ptr<StepAnnouncement> announcement;  // null on a group of one rank, like reducer
  std::shared_ptr<GradientReducer> reducer;
  BackwardTrace no_trace = {};
  bool buffers_due = true;                   // the next forward pass broadcasts buffers
  std::optional<JoinOptions> join = {};      // inside with_join
  std::optional<std::int64_t> samples = {};  // inside with_join: for the next forward pass to announce
};

// For with_join's throw_on_early_termination: MismatchError naming the ranks that are no longer active.
void throw_if_a_rank_has_ended(StepAnnouncement& announcement);

// Continues from what communication_state() gave on every rank, in rank order. Returns why the state was not
// taken, as "is of 3 ranks, this run has 2"; empty when it was. Communicates nothing.
std::string restore_communication(DistributedDataParallel& ddp, const std::vector<CommState>& of_ranks);

}  // namespace rondo
