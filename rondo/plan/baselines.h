#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/plan/schedule/schedules.h"

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

}  // namespace rondo::plan
