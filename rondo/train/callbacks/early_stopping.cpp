#include "rondo/train/callbacks/early_stopping.h"

#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"

namespace rondo {

void EarlyStopping::on_validation_end(Trainer& trainer, const ValidationRecord& record) {
  if (best_.improves(record)) {
    passes_without_improvement_ = 0;
    if (options_.restore_best) best_weights_ = trainer.copy_weights();
    best_validation_ = record.values;
  } else {
    ++passes_without_improvement_;
  }
}

void EarlyStopping::on_train_end(Trainer& trainer, const FitResult& result) {
  if (!options_.restore_best || result.end == FitEnd::preempted || passes_without_improvement_ == 0 ||
      has_restored_)
    return;
  if (best_weights_.empty()) {
    if (trainer.strategy().context().rank() != 0) return;
    if (best_.is_known()) {
      log::warning(
          "early_stopping: the best validation was before this training was resumed, and its weights are not "
          "in the checkpoint: training ends with the last ones");
    } else {
      log::warning("early_stopping: ", options_.metric,
                   " was not a number in any validation, so none was the best: training ends with the last "
                   "weights");
    }
    return;
  }
  trainer.put_weights(best_weights_, best_validation_);
  has_restored_ = true;
}

nlohmann::json EarlyStopping::state() const {
  return {{"best", best_.state()},
          {"passes_without_improvement", passes_without_improvement_},
          {"has_restored", has_restored_}};
}

void EarlyStopping::restore(const nlohmann::json& state) {
  best_.restore(state.at("best"));
  passes_without_improvement_ = static_cast<int>(
      json_integer(state.at("passes_without_improvement"), "\"passes_without_improvement\"", 0, 1 << 30));
  has_restored_ = state.value("has_restored", false);  // of an earlier version without
  best_weights_.clear();  // of passes of another run or world: not every rank has them
}

}  // namespace rondo
