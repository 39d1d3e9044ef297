#include "rondo/train/callbacks/best_figure.h"

#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

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
  // JSON has no infinity; null stands for "nothing seen yet".
  return std::isfinite(best_) ? nlohmann::json(best_) : nlohmann::json();
}

void BestFigure::restore(const nlohmann::json& state) {
  best_ = state.is_null() ? std::numeric_limits<double>::infinity() : json_number(state, "\"best\"");
}

}  // namespace rondo
