#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/plan/schedule/schedules.h"
#include "rondo/plan/solver/linear_model.h"

// The planner, and the baselines that every plan is compared with.
namespace rondo::plan {

struct Baseline {
  std::string name;
  simulate::Candidate plan;
  simulate::StepResult result;  // result.fits: whether it respects the limit
};

// Returns all baselines: uniform ddp, zero1, zero2, zero3 (gathers one slot ahead, checkpointing only if the
// limit requires it), fsdp_prefetch_1 and fsdp_limit_2 (zero3, with or without checkpointing of all units,
// one gather ahead and at most two in flight), keep_last_k, greedy_time_per_byte, additive_dp (OSDP),
// earliest_deadline_first. When `wait` ends, returns those computed so far, at least the uniform ones.
std::vector<Baseline> all_baselines(const cost::StepModel& model, std::uint64_t memory_limit,
                                    const Wait& wait = {});

Baseline uniform(const cost::StepModel& model, cost::Strategy strategy, std::uint64_t memory_limit);
Baseline fsdp(const cost::StepModel& model, int in_flight, std::uint64_t memory_limit);
Baseline keep_last_k(const cost::StepModel& model, std::uint64_t memory_limit, const Wait& wait = {});
Baseline greedy_time_per_byte(const cost::StepModel& model, std::uint64_t memory_limit,
                              const Wait& wait = {});
Baseline additive_dp(const cost::StepModel& model, std::uint64_t memory_limit);
// Launches gathers by deadline as soon as the link is free, for the choices of `choices_of`.
Baseline earliest_deadline_first(const cost::StepModel& model, const simulate::Candidate& choices_of,
                                 std::uint64_t memory_limit);

// Returns a random legal plan: a choice for each unit, a slot for each segment. A plan that does not fit is
// drawn again, up to a few times, with more units sharded and checkpointed.
simulate::Candidate random_plan(const cost::StepModel& model, std::uint64_t seed, std::uint64_t number,
                                std::uint64_t memory_limit);

struct PlannerOptions {
  std::uint64_t memory_limit = 0;
  Objective objective = Objective::step_time;
  Duration time_limit = std::chrono::seconds(60);
  double target_gap = 1e-3;  // stops when the plan is proven this close to the optimum
  bool use_solver = true;
  const CancelToken* cancel = nullptr;  // stops early with the best plan so far; not owned
  // Receives progress messages for the user.
  std::function<void(const std::string&)> progress;
};

// The planner's answer for one memory limit.
struct PlanResult {
  bool feasible = false;
  simulate::Candidate plan;  // the plan with the least memory if nothing fits
  simulate::StepResult result;
  double lower_bound_s = 0;  // lower bound of every plan's step time; weaker without a solver
  double gap = 0;            // (step - lower bound) / lower bound
  double solve_s = 0;
  std::string solver;         // "HiGHS 1.15.1", or "heuristic" and the reason
  bool is_heuristic = false;  // true if there was no solver, or it gave no bound in time
  // Change of the step time per byte of memory (negative: saves), from the relaxation's duals.
  double seconds_per_byte = 0;
  MemoryFloor floor;
  std::vector<Baseline> baselines;
};

// Searches for the best plan. Deterministic unless the time limit interrupts it.
PlanResult make_plan(const cost::StepModel& model, const PlannerOptions& options);

}  // namespace rondo::plan
