#pragma once

#include <string>

#include "rondo/train/callbacks/best_figure.h"

namespace rondo {

// A callback that lowers the learning rate when a validation figure has not improved for several validations.
// It multiplies the rate of the schedule, or the optimizer's own rate.
class ReduceOnPlateau final : public Callback {
 public:
  // The watched figure and the reductions.
  struct Options {
    std::string metric = "loss";    // name of a metric of the validation
    bool larger_is_better = false;  // whether larger values are better
    double minimum_change = 0;      // smaller improvements do not count
    int patience = 3;               // validations without improvement before a reduction
    double factor = 0.1;            // multiplier of the rate at each reduction
    double smallest = 1e-6;         // lower limit of the product of all reductions
  };
  // Throws UsageError for invalid options.
  explicit ReduceOnPlateau(const Options& options);

  std::string name() const override { return "reduce_on_plateau"; }
  // Throws UsageError for a training without validation data.
  void on_train_begin(Trainer&, const FitOutline& outline) override { best_.require_validation(outline); }
  // Throws UsageError if the trainer does not compute the metric.
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  double learning_rate_factor() const override { return product_; }
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

 private:
  Options options_;
  BestFigure best_;
  int passes_without_improvement_ = 0;
  double product_ = 1;
};

}  // namespace rondo
