#pragma once

#include <cstdio>
#include <optional>

#include "rondo/observe/progress.h"
#include "rondo/train/callback.h"

namespace rondo {

// A callback that displays progress on rank 0: a bar on a terminal, lines elsewhere.
class ProgressDisplay final : public Callback {
 public:
  // Stream and style.
  struct Options {
    std::FILE* stream = stderr;                      // not owned
    ProgressStyle style = ProgressStyle::automatic;  // bar, lines or nothing
    std::int64_t line_every_steps = 10;              // steps between lines
  };
  // Displays nothing before training begins.
  explicit ProgressDisplay(const Options& options) : options_(options) {}

  std::string name() const override { return "progress_display"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_progress(Trainer& trainer, std::int64_t batches, std::int64_t of) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  Options options_;
  std::string unit_;
  std::optional<Progress> progress_;  // set on rank 0 during training
  double smoothed_rate_ = 0;
};

}  // namespace rondo
