#include "rondo/train/callbacks/early_stopping.h"

#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void EarlyStopping::on_validation_end(Trainer&, const ValidationRecord& record) {
  const auto found = record.values.find(options_.metric);
  if (found == record.values.end()) {
    throw UsageError(
        str("early stopping watches '", options_.metric, "', which the trainer does not compute"));
  }
  const double value = options_.larger_is_better ? -found->second : found->second;
  if (value < best_ - options_.minimum_change) {
    best_ = value;
    passes_without_improvement_ = 0;
  } else {
    ++passes_without_improvement_;
  }
}

nlohmann::json EarlyStopping::state() const {
  // JSON has no infinity; null stands for "nothing seen yet".
  const nlohmann::json best = std::isfinite(best_) ? nlohmann::json(best_) : nlohmann::json();
  return {{"best", best}, {"passes_without_improvement", passes_without_improvement_}};
}

void EarlyStopping::restore(const nlohmann::json& state) {
  const nlohmann::json& best = state.at("best");
  best_ = best.is_null() ? std::numeric_limits<double>::infinity() : best.get<double>();
  passes_without_improvement_ = state.at("passes_without_improvement");
}

}  // namespace rondo
