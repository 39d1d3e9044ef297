#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "rondo/train/callback.h"

namespace rondo {

// The best value so far of a validation figure, for several callbacks.
class BestFigure {
 public:
  // The watched figure.
  struct Options {
    std::string metric = "loss";    // name of a metric of the validation
    bool larger_is_better = false;  // whether larger values are better
    double minimum_change = 0;      // smaller improvements are ignored
  };
  // `watcher` is the callback's name for errors.
  BestFigure(Options options, std::string watcher)
      : options_(std::move(options)), watcher_(std::move(watcher)) {}

  // Throws UsageError for a training without validation. Call it when training begins.
  void require_validation(const FitOutline& outline) const;
  // Returns whether this validation's figure is better than all before, and keeps it then. NaN is never
  // better. Throws UsageError if the trainer does not compute the metric.
  bool improves(const ValidationRecord& record);
  // Returns whether any value was a number.
  bool is_known() const { return best_ < std::numeric_limits<double>::infinity(); }
  nlohmann::json state() const;  // null before the first value
  void restore(const nlohmann::json& state);

 private:
  Options options_;
  std::string watcher_;
  double best_ = std::numeric_limits<double>::infinity();  // negated if larger is better
};

}  // namespace rondo
