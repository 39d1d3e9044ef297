#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/train/own_part.h"
#include "rondo/train/replica_hosts.h"

namespace rondo {

class Trainer;

// Keeps the newest state of a training in memory that outlives its ranks, and what each host has also in the
// memory of the next one, as Gemini does (SOSP 2023). The state is copied at once, and written and sent while
// training goes on, in a group of its own; one replica at a time. One thread uses an object.
class ReplicaSaver {
 public:
  // `root`: in this host's memory, the same for ranks that share it. Collective. Throws AgreedError.
  ReplicaSaver(const Context& context, std::filesystem::path root);
  // Waits for what is under way.
  ~ReplicaSaver();
  ReplicaSaver(const ReplicaSaver&) = delete;
  ReplicaSaver& operator=(const ReplicaSaver&) = delete;

  // Begins the replica of `step`, after the one before has ended; `model` and `rest` as PartsSaver::save()
  // takes them. Returns when the state has been copied. One that cannot be written is a warning, and the one
  // before stands. Collective. Throws AgreedError when it cannot even be begun.
  void save(std::int64_t step, ShardedState state, const NamedTensors& model, CheckpointContents rest);

  // Waits for what is under way. Why it failed, empty when it did not, the same on all ranks.
  std::string finish();

 private:
  struct Pending;
  void write(Pending& replica) const;
  void commit(Pending& replica, const std::vector<nlohmann::json>& told) const;

  Context context_;
  std::filesystem::path root_;
  ReplicaHosts hosts_;
  Group group_;  // of the thread
  OwnPart own_part_;
  std::string failure_;  // of the last one; written by the thread, read after it was joined
  std::thread thread_;
};

// What Trainer::save() writes, as a replica of the present step; training goes on meanwhile. Between steps;
// collective. Throws CallbackFailed, and as ReplicaSaver::save() does.
void replicate(Trainer& trainer, ReplicaSaver& replica);

}  // namespace rondo
