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

// How much the gradients of this rank count in the sum.
struct GradientWeight {
  double scale = 1;    // with 0 the gradients are not even read, so they may hold NaN
  bool equal = false;  // all ranks have this scale, 1 / size: the sum is the mean. The same on all ranks
};

// What one rank tells the others about a step.
struct RankStep {
  bool active = true;        // has a batch; false once it has run out of data inside with_join
  bool synchronises = true;  // the backward pass will reduce gradients (not under no_sync)
  bool broadcasts_buffers = false;
  std::optional<std::int64_t> samples = {};  // behind its gradients; empty when not told
  StepTotals totals = {};
  std::optional<std::int64_t> steps = {};  // optimizer steps done before; empty when not told
  std::optional<double> scale =
      {};  // of the last step's combined gradients, by the program; empty when not told
};

// One small all-reduce by which ranks learn each other's RankStep. Started early and awaited where its result
// is needed, it costs no waiting in the usual case.
class StepAnnouncement {
 public:
  explicit StepAnnouncement(Group group)
      : group_(std::move(group)), control_device_(group_.traits().control_device()) {}

  // Collective; returns at once.
  void start(const RankStep& mine);
  // What ensure_started() is to start where nothing else was started before.
  void offer(const RankStep& mine) {
    offer_later([mine] { return mine; });
  }
  // The same where it is not known yet: `mine` is asked when ensure_started() starts.
  void offer_later(std::function<RankStep()> mine) { offered_ = std::move(mine); }
  void ensure_started();
  // ensure_started() starts this where nothing was offered or started; `mine` may throw instead.
  void offer_always(std::function<RankStep()> mine) { offered_always_ = std::move(mine); }
  // From now on every announcement of a pass that is due carries the ranks' samples to `check`, which
  // compares them in ranks() unless a rank has run out of data.
  void carry(std::shared_ptr<const DriftCheck> check) { drift_ = std::move(check); }
  // Whether the announcement that was started last, and not cleared, carries samples.
  bool carries_samples() const { return started_ && carries_samples_; }
  // Whether start was called since the last clear.
  bool started() const { return started_; }
  // By group rank; waits for the ranks that have not announced theirs. Requires started(). Throws
  // MismatchError when ranks that say how many optimizer steps they have done do not say the same, and when
  // they have scaled the last step's gradients by different factors, or have different parameters (carry()).
  const std::vector<RankStep>& ranks();
  // The sum over the ranks of the newest announcement that was started, also after clear().
  StepTotals totals();
  // The ranks that were active in the newest announcement known to have had any; ascending.
  const std::vector<int>& last_active() const { return last_active_; }
  void clear();

  // Scale: this rank's samples / all samples when those were announced, otherwise 1 / (ranks of the group, or
  // of the active ones when `divide_by_active`). 0 for a rank that is not active, and for all when there are
  // no samples anywhere. Throws MismatchError when only some ranks told samples.
  GradientWeight gradient_weight(bool divide_by_active);
  bool everyone_active();

 private:
  void compare_steps() const;
  void compare_scales() const;
  void compare_samples();

  Group group_;
  c10::DeviceType control_device_;
  std::shared_ptr<const DriftCheck> drift_;  // null where nobody asked for it
  bool carries_samples_ = false;
  std::vector<ParameterSample> samples_;  // by rank, of an announcement that carries them
  bool started_ = false;
  at::Tensor table_;  // [ranks, fields] int64; every rank fills its own row of zeros. Kept from step to step
  std::vector<at::Tensor> message_;  // the table where the engine can reach it
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<RankStep()> offered_;
  std::function<RankStep()> offered_always_;
  std::vector<RankStep> ranks_;
  std::vector<int> last_active_;
  StepTotals totals_;
};

}  // namespace rondo
