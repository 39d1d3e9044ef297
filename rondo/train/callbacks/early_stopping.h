#pragma once

#include <string>

#include "rondo/train/callbacks/best_figure.h"
#include "rondo/train/trainer.h"

namespace rondo {

// A callback that ends training when a validation figure has not improved for several validations.
class EarlyStopping final : public Callback {
 public:
  // The watched figure and the patience.
  struct Options {
    std::string metric = "loss";    // name of a metric of the validation
    int patience = 3;               // validations without improvement before training ends
    double minimum_change = 0;      // smaller improvements are ignored
    bool larger_is_better = false;  // whether larger values are better
    // Keeps a copy of the weights of the best validation in memory (each rank its part). Training ends with
    // these weights and their figures, unless it is pre-empted. A resumed run only has weights of its own
    // validations: if the best one was earlier, it ends with its last weights and a warning.
    bool restore_best = false;
  };
  // Creates a callback that begins to count at the first validation.
  explicit EarlyStopping(const Options& options)
      : options_(options),
        best_({options.metric, options.larger_is_better, options.minimum_change}, "early stopping") {}

  std::string name() const override { return "early_stopping"; }
  // Throws UsageError for a training without validation data.
  void on_train_begin(Trainer&, const FitOutline& outline) override { best_.require_validation(outline); }
  // Throws UsageError if the trainer does not compute the metric.
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
  WeightsCopy best_weights_;  // set with restore_best
  std::map<std::string, double> best_validation_;
  bool has_restored_ = false;  // the best weights were restored and no step has followed
};

}  // namespace rondo
