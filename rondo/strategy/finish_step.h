#pragma once

#include <string>

#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/training.h"

namespace rondo {

// Ends a step whose gradients are complete: clips and updates, or detects that the step is skipped.
// `optimizer` was constructed from model.module() or from the master weights of `precision`. Sets loss_scale,
// gradient_norm and skipped of `result`. Collective.
void finish_step(PreparedModel& model, TrainingPrecision& precision, torch::optim::Optimizer& optimizer,
                 const StepSettings& settings, StepResult& result);

// Configures an optimizer that reads norms of full parameters (LAMB, LARS) to sum them over the ranks' parts
// of `model`. `optimizer` was constructed as for finish_step(). Returns whether it is such an optimizer.
// Throws UsageError if the model's parts do not sum norms; the message names `divided_by`, which divides
// parameters, and `instead`, the alternative.
bool add_up_norms(torch::optim::Optimizer& optimizer, PreparedModel& model, TrainingPrecision& precision,
                  const std::string& divided_by, const std::string& instead);

}  // namespace rondo
