#pragma once

#include <vector>

#include "rondo/cost/step_model.h"

namespace rondo::simulate {

// Some blocks of one collective, launched one behind the other.
struct Launch {
  int job = 0;  // number in StepModel::jobs
  int blocks = 0;
  bool operator==(const Launch&) const = default;
};

// A training step as a search changes it and the simulator executes it, in numbers of a StepModel: what each
// unit does, and which blocks are handed to the link at the start of which slot, in which order. What a
// search ends with is a cost::StepPlan.
struct Candidate {
  std::vector<cost::UnitChoice> choices;      // by unit
  std::vector<std::vector<Launch>> launches;  // by slot
  bool operator==(const Candidate&) const = default;
};

// Throws UsageError that names the unit and the collective when the plan is not legal: a choice that the unit
// does not have, a parameter or gradient not communicated exactly once per collective of its strategy, a
// block launched before its data is there or after it is needed.
void check_plan(const cost::StepModel& model, const Candidate& plan);

// The choice nearest to the one wanted: zero3 is zero3_keep where the unit has no slot between forward and
// backward, checkpointing falls away where the unit has none, another strategy is the first the unit allows.
cost::UnitChoice nearest_choice(const cost::StepModel& model, int unit, cost::UnitChoice wanted);

}  // namespace rondo::simulate
