#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/plan/schedule/schedules.h"
#include "rondo/plan/solver/linear_model.h"

// What a plan is compared with, always.
namespace rondo::plan {

struct Baseline {
  std::string name;
  simulate::Candidate plan;
  simulate::StepResult result;  // result.fits tells whether it respects the limit
};

// All of them: uniform ddp, zero1, zero2, zero3 (gathers one slot ahead, checkpointing only if the limit asks
// for it), fsdp_prefetch_1 and fsdp_limit_2 (zero3 with checkpointing as a whole or not, one gather ahead and
// at most two in flight), keep_last_k, greedy_time_per_byte, additive_dp (OSDP), earliest_deadline_first.
// When `wait` ends, those that were computed by then, at least the uniform ones.
std::vector<Baseline> all_baselines(const cost::StepModel& model, std::uint64_t memory_limit,
                                    const Wait& wait = {});

Baseline uniform(const cost::StepModel& model, cost::Strategy strategy, std::uint64_t memory_limit);
Baseline fsdp(const cost::StepModel& model, int in_flight, std::uint64_t memory_limit);
Baseline keep_last_k(const cost::StepModel& model, std::uint64_t memory_limit, const Wait& wait = {});
Baseline greedy_time_per_byte(const cost::StepModel& model, std::uint64_t memory_limit,
                              const Wait& wait = {});
Baseline additive_dp(const cost::StepModel& model, std::uint64_t memory_limit);
// Gathers by deadline as early as the link is free, for the choices of the best baseline given.
Baseline earliest_deadline_first(const cost::StepModel& model, const simulate::Candidate& choices_of,
                                 std::uint64_t memory_limit);

// Legal plans drawn by chance: a choice for each unit, a slot for each block. Those that do not fit are drawn
// again, up to a few times, with more units sharded and checkpointed.
simulate::Candidate random_plan(const cost::StepModel& model, std::uint64_t seed, std::uint64_t number,
                                std::uint64_t memory_limit);

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
