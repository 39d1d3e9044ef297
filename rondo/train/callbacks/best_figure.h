#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "rondo/train/callback.h"

namespace rondo {

// The best value so far of a figure of the validations: what several callbacks watch.
class BestFigure {
 public:
  // What is watched.
  struct Options {
    std::string metric = "loss";    // name of a metric of the validation
    bool larger_is_better = false;  // whether the metric is to rise
    double minimum_change = 0;      // smaller improvements do not count
  };
  // `watcher` is for the error.
  BestFigure(Options options, std::string watcher)
      : options_(std::move(options)), watcher_(std::move(watcher)) {}

  // Throws UsageError for a training without validations, which have the figures. When training begins.
  void require_validation(const FitOutline& outline) const;
  // Whether this validation has a better figure than all before; then it is the best. NaN is never better.
  // Throws UsageError when the trainer computes no such metric.
  bool improves(const ValidationRecord& record);
  bool is_known() const { return best_ < std::numeric_limits<double>::infinity(); }  // one was a number
  nlohmann::json state() const;  // null before the first validation
  void restore(const nlohmann::json& state);

 private:
  Options options_;
  std::string watcher_;
  double best_ = std::numeric_limits<double>::infinity();  // negated when larger is better
};

}  // namespace rondo
