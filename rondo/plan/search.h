#pragma once

#include <cstdint>

#include "rondo/base/cancel.h"
#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {

// Local searches. Each changes a plan and scores it in the simulator until `wait` ends, `target_s` is reached
// or no change improves the plan. All are deterministic unless time interrupts them.

// Changes one unit's choice or exchanges two units' choices, and makes the schedule by list rules.
Scheduled search_choices(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                         double target_s, const Wait& wait);

// Returns the plan with the least persistent memory among equally fast plans, which leaves room for costs
// that the profile does not have. Tries the other choices unit by unit.
Scheduled with_less_memory(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                           const Wait& wait);

// Moves segments one slot earlier or later, or before other segments in a slot's queue.
Scheduled search_schedules(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                           double target_s, std::uint64_t seed, const Wait& wait);

// Returns true if exhaustive_search() is feasible: few units, one micro-batch.
bool is_small(const cost::StepModel& model);

struct Exhaustive {
  Scheduled best;
  // True if every plan was enumerated and every collective is one segment. Then no plan is faster than
  // `best`.
  bool is_proven = false;
};

// Runs branch and bound over all choices of all units, all slots of all collectives and all orders within a
// slot. Segments of a collective stay together. `start` is the initial incumbent; the search stops when
// `wait` ends.
Exhaustive exhaustive_search(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                             const Wait& wait);

}  // namespace rondo::plan
