#pragma once

#include <filesystem>

#include "rondo/train/callback.h"

namespace rondo {

// A callback that resumes fit after the process died. It keeps one checkpoint while training, which the
// restarted program finds, and deletes it when training has ended.
class BackupAndRestore final : public Callback {
 public:
  // Location and interval of the backup.
  struct Options {
    std::filesystem::path directory = {};  // directory for the backup only: it is deleted at the end
    std::int64_t every_steps = 0;          // 0: at the end of each epoch
  };
  // The folder is created with the first backup; training does not start if it cannot be created or written.
  explicit BackupAndRestore(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "backup_and_restore"; }
  // Restores the backup if this process has not trained yet.
  void before_fit(Trainer& trainer) override;
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  // Deletes the backup; a pre-empted training keeps it.
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  Options options_;
  bool due_ = false;
};

}  // namespace rondo
