#pragma once

#include <string>
#include <vector>

#include "rondo/plan/planner.h"

namespace rondo::plan {

// The answer in words.
struct Explanation {
  std::vector<std::string> reasons;  // by unit: what another choice would cost or need
  std::string binding;  // what keeps the step from being faster; of an infeasible limit what stands in
                        // the way, beginning with the smallest limit that is feasible
  std::string need;     // of an infeasible limit: where the least is needed, and what for
  double one_more_gib_saves_s = 0;  // by the relaxation's dual values; at most what is above compute alone
};

// When `wait` ends, the remaining units are not compared with other choices, and say so.
Explanation explain(const cost::StepModel& model, const PlanResult& answer, std::uint64_t memory_limit,
                    const Wait& wait = {});

// One point of the step time against the limit.
struct SweepPoint {
  std::uint64_t limit = 0;
  PlanResult answer;
};
// Answers at `points` limits, evenly from the smallest feasible to where no limit binds; each within
// options.time_limit / points.
std::vector<SweepPoint> sweep(const cost::StepModel& model, PlannerOptions options, int points);

// "forward of layers.3", "backward of layers.3 in micro-batch 2", "optimizer", "epilogue".
std::string slot_name(const cost::StepModel& model, int slot);

// The largest batch of one rank and micro-batch that fits, for each uniform strategy with and without
// checkpointing, and for the plan with the least memory ("planned"). Activations, workspaces and times are
// taken to grow with the batch. 0: not even one sample fits.
struct LargestBatch {
  std::string strategy;
  std::uint64_t batch = 0;
  double samples_per_s = 0;  // of one rank, at that batch
};
std::vector<LargestBatch> largest_batches(const cost::Profile& profile, const cost::StepOptions& options,
                                          std::uint64_t memory_limit);

}  // namespace rondo::plan
