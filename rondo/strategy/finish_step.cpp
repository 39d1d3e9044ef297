#include "rondo/strategy/finish_step.h"

#include <torch/optim/optimizer.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/clip_shards.h"

namespace rondo {

void finish_step(PreparedModel& model, TrainingPrecision& precision, torch::optim::Optimizer& optimizer,
                 const StepSettings& settings, StepResult& result) {
  result.loss_scale = precision.loss_scale();
  const bool finite = precision.finish_gradients(optimizer);
  if (settings.clip_norm > 0 && finite)
    result.gradient_norm = clip_optimized(model, precision.master_weights(), settings.clip_norm);
  result.skipped = !precision.step(optimizer, [&] { model.step(optimizer); });
}

bool add_up_norms(torch::optim::Optimizer& optimizer, PreparedModel& model, const std::string& divided_by,
                  const std::string& instead) {
  auto* const normed = dynamic_cast<WholeNormOptimizer*>(&optimizer);
  if (normed == nullptr) return false;
  NormSum sum = model.parts().norm_sum();
  if (!sum) {
    throw UsageError(str("LAMB and LARS look at norms of whole parameters, which ", divided_by,
                         " spreads over ranks and does not add up; use ", instead));
  }
  normed->set_norm_sum(std::move(sum));
  return true;
}

}  // namespace rondo
