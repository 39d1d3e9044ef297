#pragma once

#include <string>
#include <vector>

#include "rondo/plan/planner.h"

namespace rondo::plan {

// A planner's answer in words.
struct Explanation {
  std::vector<std::string> reasons;  // by unit: the cost or memory of other choices
  // Resource that limits the step time. For an infeasible limit: the smallest feasible limit, and the
  // obstacle.
  std::string binding;
  // For an infeasible limit: the slot with the smallest possible peak, and its contents.
  std::string need;
  double one_more_gib_saves_s = 0;  // from the relaxation's dual values; at most the time above compute alone
};

// Describes an answer. When `wait` ends, the text of each remaining unit says that no other choice was tried.
Explanation explain(const cost::StepModel& model, const PlanResult& answer, std::uint64_t memory_limit,
                    const Wait& wait = {});

// One point of the step time as a function of the limit.
struct SweepPoint {
  std::uint64_t limit = 0;
  PlanResult answer;
};
// Returns the answers for `points` limits, spaced evenly from the smallest feasible limit to one that no
// longer binds. Each takes at most options.time_limit / points.
std::vector<SweepPoint> sweep(const cost::StepModel& model, PlannerOptions options, int points);

// Returns "forward of layers.3", "backward of layers.3 in micro-batch 2", "optimizer" or "epilogue".
std::string slot_name(const cost::StepModel& model, int slot);

// The largest batch per rank and micro-batch that fits, for each uniform strategy with and without
// checkpointing, and for the plan with the least memory ("planned"). Activations, workspaces and times are
// assumed to scale with the batch. 0: not even one sample fits.
struct LargestBatch {
  std::string strategy;
  std::uint64_t batch = 0;
  double samples_per_s = 0;  // per rank, at that batch
};
std::vector<LargestBatch> largest_batches(const cost::Profile& profile, const cost::StepOptions& options,
                                          std::uint64_t memory_limit);

}  // namespace rondo::plan
