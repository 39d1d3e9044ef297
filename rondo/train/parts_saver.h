#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/train/own_part.h"

namespace rondo {

// A saver of checkpoints that all ranks write concurrently, each its part of the state. So no rank needs
// memory or time for the full model. All ranks see the same directory. In the background the state is copied
// at once, into memory that is reused, and written while training continues, as in
// torch.distributed.checkpoint's async_save and CheckFreq (FAST 2021). One checkpoint at a time.
class PartsSaver {
 public:
  // Settings of a checkpoint.
  struct Request {
    std::filesystem::path root = {};
    std::int64_t step = 0;
    int keep = 3;
    bool in_background = false;
  };
  PartsSaver();
  // Drops an incomplete checkpoint unless finish() was called.
  ~PartsSaver();
  PartsSaver(const PartsSaver&) = delete;
  PartsSaver& operator=(const PartsSaver&) = delete;

  // `model` has the names for the checkpoint; several may refer to one tensor. `rest` is the data outside all
  // parts, which rank 0 provides. In the background it waits for the previous save and returns when the state
  // is copied. Collective. Throws AgreedError if a rank cannot write; in the background that is a warning,
  // older checkpoints stay, and finish() reports it again.
  void save(const Context& context, const Request& request, ShardedState state, const NamedTensors& model,
            CheckpointContents rest);

  // Blocks until the background checkpoint is complete on disk. Collective. Throws AgreedError if it could
  // not be written.
  void finish(const Context& context);

  // Drops the background checkpoint, because other ranks may be gone. Not collective.
  void abandon() noexcept;

 private:
  class Writing;

  std::unique_ptr<Writing> writing_;
  OwnPart own_part_;
};

}  // namespace rondo
