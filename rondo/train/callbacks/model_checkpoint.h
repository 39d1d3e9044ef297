#pragma once

#include <filesystem>
#include <string>

#include "rondo/base/error.h"
#include "rondo/train/callbacks/best_figure.h"

namespace rondo {

// Saves checkpoints at intervals, at the end of training, and when training is pre-empted: when everything of
// the step has happened, so that a resumed run begins with the next one. One that cannot be written is a
// warning, and training goes on; the last one is an error. Or, with `best_of`, after each validation that was
// better than all before: then of the weights that were validated.
class ModelCheckpoint final : public Callback {
 public:
  // Where checkpoints go, and how often.
  struct Options {
    std::filesystem::path directory = {};  // holds step-NNNNNNNN
    std::int64_t every_steps = 0;          // 0: at the end of every `every_epochs` epochs
    std::int64_t every_epochs = 1;         // without every_steps
    int keep = 3;                          // newest ones that stay; with best_of those are the best ones
    std::string best_of = {};              // name of a metric of the validation; empty: at intervals
    bool larger_is_better = false;         // whether that metric is to rise
    bool in_parts = false;                 // as in SaveOptions
    bool in_background = false;            // likewise
    bool incremental = false;              // likewise
  };
  // The folder is made with the first checkpoint; training into one that cannot be made or written does not
  // begin.
  explicit ModelCheckpoint(const Options& options)
      : options_(options), best_({options.best_of, options.larger_is_better}, "the best checkpoint") {}

  std::string name() const override {
    return options_.best_of.empty() ? "model_checkpoint" : "best_checkpoint";
  }
  // Throws UsageError for a training without validation data, with `best_of`.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;
  // Throws UsageError when the trainer computes no metric `best_of`.
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

 private:
  void save(Trainer& trainer);

  Options options_;
  BestFigure best_;
  bool due_ = false;  // an interval has ended with this step, or the figure is the best
  std::int64_t saved_step_ = -1;
  std::int64_t replaced_ = 0;  // Trainer::times_replaced() of what is saved
};

}  // namespace rondo
