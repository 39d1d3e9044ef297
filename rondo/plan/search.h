#pragma once

#include <cstdint>

#include "rondo/base/cancel.h"
#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {

// Improves a plan by changes scored in the simulator, until `wait` ends, `target_s` is reached or nothing
// more is found. Both are deterministic but for where time cuts them off.

// Changes of choices: one unit's, or two units' exchanged, with a schedule by list rules.
Scheduled search_choices(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                         double target_s, const Wait& wait);

// Of plans that are as fast, the one that keeps less in memory: what is not kept need not be written either,
// and leaves room for what the profile does not know. Unit by unit, its other choices.
Scheduled with_less_memory(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                           const Wait& wait);

// Changes of the schedule: blocks one slot earlier or later, or before another in the queue of a slot.
Scheduled search_schedules(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                           double target_s, std::uint64_t seed, const Wait& wait);

// Models that exhaustive_search() is for: few units, one micro-batch.
bool is_small(const cost::StepModel& model);

struct Exhaustive {
  Scheduled best;
  // Every plan has been looked at and every collective is one block: no plan is faster than `best`.
  bool is_proven = false;
};

// Branch and bound over every choice of every unit, every slot of every collective and every order in a slot;
// the blocks of a collective stay together. Begins with a plan to beat, stops when `wait` ends.
Exhaustive exhaustive_search(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                             const Wait& wait);

}  // namespace rondo::plan
