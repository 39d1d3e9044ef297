#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rondo/cost/step_plan.h"
#include "rondo/parallel/sharded/sharding.h"

namespace rondo {

// Makes the plan of a step once the model is known: of its units (names and sizes) on so many ranks.
using PlanMaker = std::function<cost::StepPlan(const std::vector<cost::PlannedUnit>& units, int ranks)>;

// The same strategy for every unit.
PlanMaker uniform_plan(Sharding everywhere);

// A strategy drawn for every unit; the same draw on every rank and machine for a seed. `is_told`: in the log.
PlanMaker drawn_plan(std::uint64_t seed, bool is_told = false);

// A plan for this model, from anywhere. Throws UsageError naming its source, what does not fit and what to
// do: a plan for another number of ranks, units that it leaves out, entries that name no unit, a unit that
// has another size in the model.
PlanMaker given_plan(cost::StepPlan plan);

}  // namespace rondo
