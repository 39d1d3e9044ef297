#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "rondo/train/callback.h"
#include "rondo/train/memory_checkpoint_saver.h"

namespace rondo {

// A callback that keeps the newest state of the training in memory that outlives its ranks, for a restart
// (newest_memory_checkpoint.h). A memory checkpoint that cannot be written is a warning, and training
// continues.
class MemoryCheckpoint final : public Callback {
 public:
  // Location and interval of memory checkpoints.
  struct Options {
    std::filesystem::path root = {};  // directory in this host's memory, as from memory_checkpoint_root()
    std::int64_t every_steps = 1;     // at least 1
  };
  // The memory is accessed when training begins.
  explicit MemoryCheckpoint(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "memory_checkpoint"; }
  // Throws AgreedError if the memory cannot be used.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  // Starts a memory checkpoint, after the previous one has finished.
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  // Waits for the last memory checkpoint.
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  Options options_;
  std::optional<MemoryCheckpointSaver> saver_;
};

}  // namespace rondo
