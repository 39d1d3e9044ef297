#include "rondo/train/callbacks/reduce_on_plateau.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/train/trainer.h"

namespace rondo {

ReduceOnPlateau::ReduceOnPlateau(const Options& options)
    : options_(options),
      best_({options.metric, options.larger_is_better, options.minimum_change}, "reduce on plateau") {
  if (!(options.factor > 0 && options.factor < 1))
    throw UsageError(str("reduce on plateau: factor ", options.factor, " must lie in (0, 1)"));
  if (options.patience < 1)
    throw UsageError(str("reduce on plateau: patience ", options.patience, " must be one or more"));
}

void ReduceOnPlateau::on_validation_end(Trainer& trainer, const ValidationRecord& record) {
  if (best_.improves(record)) {
    passes_without_improvement_ = 0;
    return;
  }
  if (++passes_without_improvement_ < options_.patience) return;
  passes_without_improvement_ = 0;
  product_ = std::max(product_ * options_.factor, options_.smallest);
  if (trainer.strategy().context().rank() == 0) {
    log::info("step ", record.step, ": ", options_.metric, " has not improved in ", options_.patience,
              " validations; the learning rate is ", product_, " times what it would be");
  }
}

nlohmann::json ReduceOnPlateau::state() const {
  return {{"best", best_.state()}, {"passes", passes_without_improvement_}, {"product", product_}};
}

void ReduceOnPlateau::restore(const nlohmann::json& state) {
  best_.restore(state.at("best"));
  passes_without_improvement_ = static_cast<int>(json_integer(state.at("passes"), "\"passes\"", 0, 1 << 30));
  product_ = json_number(state.at("product"), "\"product\"", 0);
}

}  // namespace rondo
