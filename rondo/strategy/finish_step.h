#pragma once

#include <string>

#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/training.h"

namespace rondo {

// The end of a step whose gradients are there: clips and updates, or only learns that the step is skipped.
// `optimizer` was made of model.module(), or of the master weights of `precision`. Fills in `result` what
// concerns it. Collective.
void finish_step(PreparedModel& model, TrainingPrecision& precision, torch::optim::Optimizer& optimizer,
                 const StepSettings& settings, StepResult& result);

// Lets an optimizer that looks at norms of full parameters (LAMB, LARS) add them up over the parts that
// ranks have of `model`. `optimizer` was made as for finish_step(); the return value says whether it is one.
// Throws UsageError where norms are not added up: `divided_by` is what divides parameters, `instead` what to
// use, both for the message.
bool add_up_norms(torch::optim::Optimizer& optimizer, PreparedModel& model, TrainingPrecision& precision,
                  const std::string& divided_by, const std::string& instead);

}  // namespace rondo
