#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "rondo/train/callback.h"
#include "rondo/train/replica_saver.h"

namespace rondo {

// Keeps the newest state of the training in memory that outlives its ranks, for a restart (newest_replica.h).
// One that cannot be written is a warning, and training goes on.
class MemoryReplica final : public Callback {
 public:
  // Where replicas are, and how often they are made.
  struct Options {
    std::filesystem::path root = {};  // in this host's memory, as replica_root()
    std::int64_t every_steps = 1;     // at least 1
  };
  // The memory is looked for when training begins.
  explicit MemoryReplica(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "memory_replica"; }
  // Throws AgreedError where the memory cannot be used.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  // Begins a replica, and waits for the one before.
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  // Waits for the last one.
  void on_train_end(Trainer& trainer, const FitResult& result) override;

 private:
  Options options_;
  std::optional<ReplicaSaver> saver_;
};

}  // namespace rondo
