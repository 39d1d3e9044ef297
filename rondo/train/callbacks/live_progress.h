#pragma once

#include <filesystem>
#include <memory>

#include "rondo/base/time.h"
#include "rondo/format/run_progress.h"
#include "rondo/train/callback.h"

namespace rondo {

// A callback that keeps RUN/progress.json up to date on rank 0, once a second at most, for `rondo top`.
class LiveProgress final : public Callback {
 public:
  // Writes nothing before training begins.
  explicit LiveProgress(std::filesystem::path run_directory) : run_directory_(std::move(run_directory)) {}

  std::string name() const override { return "live_progress"; }
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_end(Trainer& trainer, const StepRecord& record) override;
  void on_validation_progress(Trainer& trainer, std::int64_t batches, std::int64_t of) override;
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  void write_if_due();

  std::filesystem::path run_directory_;
  std::unique_ptr<RunProgressFile> file_;  // set on rank 0 during training
  RunProgress progress_;
  TimePoint due_;
};

}  // namespace rondo
