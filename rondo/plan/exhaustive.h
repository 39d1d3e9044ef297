#pragma once

#include <cstdint>

#include "rondo/base/cancel.h"
#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {

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
