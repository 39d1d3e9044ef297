#include "rondo/train/callbacks/best_figure.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/train/callbacks/early_stopping.h"
#include "rondo/train/callbacks/reduce_on_plateau.h"
#include "rondo/train/trainer.h"

namespace rondo {

void BestFigure::require_validation(const FitOutline& outline) const {
  if (outline.validates) return;
  throw UsageError(str(watcher_, " watches '", options_.metric,
                       "' of validations, and this training has none: give it validation data, or leave out ",
                       watcher_));
}

bool BestFigure::improves(const ValidationRecord& record) {
  const auto found = record.values.find(options_.metric);
  if (found == record.values.end())
    throw UsageError(str(watcher_, " watches '", options_.metric, "', which the trainer does not compute"));
  const double value = options_.larger_is_better ? -found->second : found->second;
  if (!(value < best_ - options_.minimum_change)) return false;
  best_ = value;
  return true;
}

nlohmann::json BestFigure::state() const {
  // JSON has no infinity; null means that there is no value yet.
  return std::isfinite(best_) ? nlohmann::json(best_) : nlohmann::json();
}

void BestFigure::restore(const nlohmann::json& state) {
  best_ = state.is_null() ? std::numeric_limits<double>::infinity() : json_number(state, "\"best\"");
}

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
  has_restored_ = state.value("has_restored", false);  // absent in earlier versions
  best_weights_.clear();  // weights of another run or world: some ranks may not have them
}

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
