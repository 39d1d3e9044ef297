#pragma once

#include <filesystem>

#include "rondo/train/callback.h"

namespace rondo {

// Makes a fit go on where it was when the process died: keeps one checkpoint while training, which the same
// program finds when it is started again, and deletes it when training has ended.
class BackupAndRestore final : public Callback {
 public:
  // Where the backup is, and how often it is made.
  struct Options {
    std::filesystem::path directory = {};  // of nothing else: it is deleted in the end
    std::int64_t every_steps = 0;          // 0: at the end of each epoch
  };
  // The folder is made with the first backup; training into one that cannot be made or written does not
  // begin.
  explicit BackupAndRestore(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "backup_and_restore"; }
  // Restores the backup of a training that has done nothing yet in this process.
  void before_fit(Trainer& trainer) override;
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  // A pre-empted training keeps its backup.
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  Options options_;
  bool due_ = false;
};

}  // namespace rondo
