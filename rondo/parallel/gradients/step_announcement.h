#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/parallel/gradients/drift_check.h"
#include "rondo/strategy/step_totals.h"

namespace rondo {

// Weight of this rank's gradients in the sum over ranks.
struct GradientWeight {
  double scale = 1;  // if 0, the gradients are not read, so they may hold NaN
  // Whether every rank has scale 1 / size, so that the sum is the mean; the same on all ranks.
  bool equal = false;
};

// Data that one rank announces to the others about a step.
struct RankStep {
  bool active = true;  // whether the rank has a batch; false once it has run out of data inside with_join
  bool synchronises = true;  // whether the backward pass will reduce gradients (false under no_sync)
  bool broadcasts_buffers = false;
  // Number of samples that the gradients were computed from; empty if not announced.
  std::optional<std::int64_t> samples = {};
  StepTotals totals = {};
  std::optional<std::int64_t> steps = {};  // optimizer steps done so far; empty if not announced
  // Factor that the program applied to the last reduced gradients; empty if not announced.
  std::optional<double> scale = {};
};

// A small all-reduce that exchanges the RankStep of all ranks. It starts early and is waited for where the
// result is needed, so it usually causes no waiting.
class StepAnnouncement {
 public:
  explicit StepAnnouncement(Group group)
      : group_(std::move(group)), control_device_(group_.traits().control_device()) {}

  // Starts the all-reduce and returns at once. Collective.
  void start(const RankStep& mine);
  // Sets the value that ensure_started() announces unless start() is called first.
  void offer(const RankStep& mine) {
    offer_later([mine] { return mine; });
  }
  // Like offer(), for a value that is not available yet: ensure_started() calls `mine`.
  void offer_later(std::function<RankStep()> mine) { offered_ = std::move(mine); }
  void ensure_started();
  // Sets the announcement that ensure_started() makes if nothing was offered or started. `mine` may throw
  // instead.
  void offer_always(std::function<RankStep()> mine) { offered_always_ = std::move(mine); }
  // Adds the ranks' samples to every later announcement of a pass for which `check` is due. ranks() has
  // `check` compare the samples unless a rank has run out of data.
  void carry(std::shared_ptr<const DriftCheck> check) { drift_ = std::move(check); }
  // Returns true if the last announcement started, and not cleared, carries samples.
  bool carries_samples() const { return started_ && carries_samples_; }
  // Returns true if start() was called since the last clear().
  bool started() const { return started_; }
  // Returns the announced steps by group rank. Blocks until all ranks have announced theirs. Requires
  // started(). Throws MismatchError if ranks announce different numbers of optimizer steps, if they scaled
  // the last step's gradients by different factors, or if they have different parameters (see carry()).
  const std::vector<RankStep>& ranks();
  // Returns the sum over the ranks of the last announcement started, also after clear().
  StepTotals totals();
  // Returns the active ranks of the last announcement received that had any, in ascending order.
  const std::vector<int>& last_active() const { return last_active_; }
  void clear();

  // Returns this rank's weight. The scale is this rank's samples / all samples if samples were announced,
  // otherwise 1 / ranks of the group, or 1 / active ranks if `divide_by_active`. The scale is 0 for an
  // inactive rank, and for all ranks if the total number of samples is 0. Throws MismatchError if only some
  // ranks announced samples.
  GradientWeight gradient_weight(bool divide_by_active);
  bool everyone_active();

 private:
  void compare_steps() const;
  void compare_scales() const;
  void compare_samples();

  Group group_;
  c10::DeviceType control_device_;
  std::shared_ptr<const DriftCheck> drift_;  // null without carry()
  bool carries_samples_ = false;
  std::vector<ParameterSample> samples_;  // by rank, if the announcement carries samples
  bool started_ = false;
  at::Tensor table_;  // [ranks, fields] int64, kept from step to step; every rank fills its own row, the
                      // other rows are zero
  std::vector<at::Tensor> message_;  // the table in memory that the engine can access
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<RankStep()> offered_;
  std::function<RankStep()> offered_always_;
  std::vector<RankStep> ranks_;
  std::vector<int> last_active_;
  StepTotals totals_;
};

}  // namespace rondo
