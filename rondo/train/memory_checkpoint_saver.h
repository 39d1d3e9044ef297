#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/train/memory_checkpoint_hosts.h"
#include "rondo/train/own_part.h"

namespace rondo {

class Trainer;

// A saver of a training's newest state in memory that outlives its ranks; each host's part is also in the
// memory of the next host, as in Gemini (SOSP 2023). The state is copied at once, then written and sent while
// training continues, in a group of its own. One memory checkpoint at a time. An object is used by one
// thread.
class MemoryCheckpointSaver {
 public:
  // `root` is a directory in this host's memory, the same for ranks that share it. Collective. Throws
  // AgreedError.
  MemoryCheckpointSaver(const Context& context, std::filesystem::path root);
  // Waits for the memory checkpoint in progress.
  ~MemoryCheckpointSaver();
  MemoryCheckpointSaver(const MemoryCheckpointSaver&) = delete;
  MemoryCheckpointSaver& operator=(const MemoryCheckpointSaver&) = delete;

  // Starts the memory checkpoint of `step` after the previous one has ended; `model` and `rest` as in
  // PartsSaver::save(). Returns when the state is copied. A memory checkpoint that cannot be written is a
  // warning, and the previous one stays. Collective. Throws AgreedError if it cannot be started.
  void save(std::int64_t step, ShardedState state, const NamedTensors& model, CheckpointContents rest);

  // Waits for the memory checkpoint in progress. Returns the reason of its failure, or an empty text; the
  // same on all ranks.
  std::string finish();

 private:
  struct Pending;
  void write(Pending& checkpoint) const;
  void commit(Pending& checkpoint, const std::vector<nlohmann::json>& told) const;

  Context context_;
  std::filesystem::path root_;
  MemoryCheckpointHosts hosts_;
  Group group_;  // group of the thread
  OwnPart own_part_;
  std::string
      failure_;  // failure of the last memory checkpoint; written by the thread, read after it is joined
  std::thread thread_;
};

// Writes the contents of Trainer::save() as a memory checkpoint of the present step while training continues.
// Call it between steps; collective. Throws CallbackFailed, and as MemoryCheckpointSaver::save() does.
void save_in_memory(Trainer& trainer, MemoryCheckpointSaver& saver);

}  // namespace rondo
