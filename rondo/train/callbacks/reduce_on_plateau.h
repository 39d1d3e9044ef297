#pragma once

#include <string>

#include "rondo/train/callbacks/best_figure.h"

namespace rondo {

// Lowers the learning rate when a validation figure has not improved for some passes: multiplies what the
// schedule, or the optimizer's own rate, says.
class ReduceOnPlateau final : public Callback {
 public:
  // What is watched, and what happens then.
  struct Options {
    std::string metric = "loss";    // name of a metric of the validation
    bool larger_is_better = false;  // whether the metric is to rise
    double minimum_change = 0;      // smaller improvements do not count
    int patience = 3;               // passes without improvement before the rate falls
    double factor = 0.1;            // what a fall multiplies the rate with
    double smallest = 1e-6;         // product of all falls, at least
  };
  // Throws UsageError for figures that cannot be.
  explicit ReduceOnPlateau(const Options& options);

  std::string name() const override { return "reduce_on_plateau"; }
  // Throws UsageError for a training without validation data.
  void on_train_begin(Trainer&, const FitOutline& outline) override { best_.require_validation(outline); }
  // Throws UsageError when the trainer computes no such metric.
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
