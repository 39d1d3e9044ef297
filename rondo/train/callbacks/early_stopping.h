#pragma once

#include <string>

#include "rondo/train/callbacks/best_figure.h"
#include "rondo/train/trainer.h"

namespace rondo {

// Ends training when a validation figure has not improved for some passes over the validation data.
class EarlyStopping final : public Callback {
 public:
  // What is watched, and for how long.
  struct Options {
    std::string metric = "loss";    // name of a metric of the validation
    int patience = 3;               // passes without improvement that end training
    double minimum_change = 0;      // smaller improvements do not count
    bool larger_is_better = false;  // whether the metric is to rise
    // A copy of the weights of the best pass is kept in memory (on each rank what it has of them), and
    // training ends with these and their figures, unless it is pre-empted. A resumed run knows the weights of
    // its own passes only; when the best one was before, it ends with its last weights and a warning.
    bool restore_best = false;
  };
  // Nothing is watched before the first validation.
  explicit EarlyStopping(const Options& options)
      : options_(options),
        best_({options.metric, options.larger_is_better, options.minimum_change}, "early stopping") {}

  std::string name() const override { return "early_stopping"; }
  // Throws UsageError for a training without validation data.
  void on_train_begin(Trainer&, const FitOutline& outline) override { best_.require_validation(outline); }
  // Throws UsageError when the trainer computes no such metric.
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_step_end(Trainer&, const StepRecord&) override { has_restored_ = false; }
  void on_train_end(Trainer& trainer, const FitResult& result) override;
  bool wants_to_stop() const override { return passes_without_improvement_ >= options_.patience; }
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

 private:
  Options options_;
  BestFigure best_;
  int passes_without_improvement_ = 0;
  WeightsCopy best_weights_;  // with restore_best
  std::map<std::string, double> best_validation_;
  bool has_restored_ = false;  // the weights are the best ones since a training has ended
};

}  // namespace rondo
