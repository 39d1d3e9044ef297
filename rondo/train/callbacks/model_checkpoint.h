#pragma once

#include <filesystem>
#include <string>

#include "rondo/base/error.h"
#include "rondo/train/callbacks/best_figure.h"

namespace rondo {

// A callback that saves checkpoints at intervals, at the end of training, and when training is pre-empted. It
// saves after all other events of the step, so that a resumed run begins with the next one. A checkpoint that
// cannot be written is a warning; the last one is an error. With `best_of` it saves after each validation
// that was better than all before, with the validated weights.
class ModelCheckpoint final : public Callback {
 public:
  // Location and interval of checkpoints.
  struct Options {
    std::filesystem::path directory = {};  // parent of step-NNNNNNNN
    std::int64_t every_steps = 0;          // 0: at the end of every `every_epochs` epochs
    std::int64_t every_epochs = 1;         // used without every_steps
    int keep = 3;                          // number of newest checkpoints to keep; with best_of these are the
                                           // best ones
    std::string best_of = {};              // name of a validation metric; empty: at intervals
    bool larger_is_better = false;         // whether larger values of that metric are better
    bool in_parts = false;                 // as in SaveOptions
    bool in_background = false;            // likewise
    bool incremental = false;              // likewise
  };
  // The folder is created with the first checkpoint; training does not start if it cannot be created or
  // written.
  explicit ModelCheckpoint(const Options& options)
      : options_(options), best_({options.best_of, options.larger_is_better}, "the best checkpoint") {}

  std::string name() const override {
    return options_.best_of.empty() ? "model_checkpoint" : "best_checkpoint";
  }
  // Throws UsageError for a training without validation data, with `best_of`.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;
  // Throws UsageError if the trainer does not compute the metric `best_of`.
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

 private:
  void save(Trainer& trainer);

  Options options_;
  BestFigure best_;
  bool due_ = false;  // an interval ended with this step, or its figure is the best
  std::int64_t saved_step_ = -1;
  std::int64_t replaced_ = 0;  // Trainer::times_replaced() at the last save
};

}  // namespace rondo
