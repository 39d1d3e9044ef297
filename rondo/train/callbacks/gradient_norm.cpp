#include "rondo/train/callbacks/gradient_norm.h"

#include <algorithm>

#include "rondo/base/log.h"
#include "rondo/train/trainer.h"

namespace rondo {

void GradientNorm::on_step_end(Trainer& trainer, const StepRecord& record) {
  if (!record.gradient_norm) return;
  largest_ = std::max(largest_.value_or(0), *record.gradient_norm);
  if (options_.warn_above == 0 || *record.gradient_norm <= options_.warn_above) return;
  if (trainer.strategy().context().rank() == 0)
    log::warning("step ", record.step, ": the gradients' norm is ", *record.gradient_norm);
}

}  // namespace rondo
