#pragma once

#include <cstdio>
#include <memory>

#include "rondo/base/progress_style.h"
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
  explicit ProgressDisplay(const Options& options);
  // Ends the bar's line.
  ~ProgressDisplay() override;
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  std::string name() const override { return "progress_display"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_progress(Trainer& trainer, std::int64_t batches, std::int64_t of) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  struct Display;

  Options options_;
  std::unique_ptr<Display> display_;  // set on rank 0 during training
};

}  // namespace rondo
