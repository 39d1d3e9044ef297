#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/plan/baselines.h"
#include "rondo/plan/schedule/memory_floor.h"
#include "rondo/plan/solver/solver.h"

namespace rondo::plan {

struct PlannerOptions {
  std::uint64_t memory_limit = 0;
  Objective objective = Objective::step_time;
  Duration time_limit = std::chrono::seconds(60);
  double target_gap = 1e-3;  // stop looking when the plan is proven this close to the best
  bool use_solver = true;
  const CancelToken* cancel = nullptr;  // stops early with the best plan so far; not owned
  // Told what goes on, for people who wait.
  std::function<void(const std::string&)> progress;
};

// The planner's answer for one memory limit.
struct PlanResult {
  bool feasible = false;
  simulate::Candidate plan;  // of the least memory when nothing fits
  simulate::StepResult result;
  double lower_bound_s = 0;  // no plan of this model is faster; without a solver a weaker one
  double gap = 0;            // (step - lower bound) / lower bound
  double solve_s = 0;
  std::string solver;           // "HiGHS 1.15.1", or "heuristic" and why
  bool is_heuristic = false;    // no solver took part, or it gave no bound in time
  double seconds_per_byte = 0;  // what one more byte is worth (negative: saves), from the relaxation's duals
  MemoryFloor floor;
  std::vector<Baseline> baselines;
};

// Looks for the best plan. Deterministic but for where the time limit cuts it off.
PlanResult make_plan(const cost::StepModel& model, const PlannerOptions& options);

}  // namespace rondo::plan
