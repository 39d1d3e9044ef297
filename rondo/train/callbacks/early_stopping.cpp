#include "rondo/train/callbacks/early_stopping.h"

#include "rondo/base/json_strict.h"

namespace rondo {

void EarlyStopping::on_validation_end(Trainer& trainer, const ValidationRecord& record) {
  if (best_.improves(record)) {
    passes_without_improvement_ = 0;
    if (options_.restore_best) best_weights_ = trainer.copy_weights();
  } else {
    ++passes_without_improvement_;
  }
}

void EarlyStopping::on_train_end(Trainer& trainer, const FitResult& result) {
  if (result.end == FitEnd::preempted || passes_without_improvement_ == 0 || best_weights_.empty()) return;
  trainer.put_weights(best_weights_);
}

nlohmann::json EarlyStopping::state() const {
  return {{"best", best_.state()}, {"passes_without_improvement", passes_without_improvement_}};
}

void EarlyStopping::restore(const nlohmann::json& state) {
  best_.restore(state.at("best"));
  passes_without_improvement_ = static_cast<int>(
      json_integer(state.at("passes_without_improvement"), "\"passes_without_improvement\"", 0, 1 << 30));
  best_weights_.clear();  // of passes of another run or world: not every rank has them
}

}  // namespace rondo
