#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "rondo/train/callback.h"
#include "rondo/train/replica_saver.h"

namespace rondo {

// A callback that keeps the newest state of the training in memory that outlives its ranks, for a restart
// (newest_replica.h). A replica that cannot be written is a warning, and training continues.
class MemoryReplica final : public Callback {
 public:
  // Location and interval of replicas.
  struct Options {
    std::filesystem::path root = {};  // directory in this host's memory, as from replica_root()
    std::int64_t every_steps = 1;     // at least 1
  };
  // The memory is accessed when training begins.
  explicit MemoryReplica(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "memory_replica"; }
  // Throws AgreedError if the memory cannot be used.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  // Starts a replica, after the previous one has finished.
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  // Waits for the last replica.
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  Options options_;
  std::optional<ReplicaSaver> saver_;
};

}  // namespace rondo
