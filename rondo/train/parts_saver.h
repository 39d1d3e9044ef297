#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/train/own_part.h"

namespace rondo {

// Saves checkpoints that all ranks write at once, each what it has of the state, so that no rank needs the
// room or the time for the full model. All ranks see the same directory. In the background the state is
// copied at once, into memory that stays for the next time, and written while training goes on, as
// torch.distributed.checkpoint's async_save and CheckFreq (FAST 2021) do; one checkpoint at a time.
class PartsSaver {
 public:
  // What a checkpoint is to be.
  struct Request {
    std::filesystem::path root = {};
    std::int64_t step = 0;
    int keep = 3;
    bool in_background = false;
  };
  PartsSaver();
  // What is being written and not complete is dropped, unless finish() was called.
  ~PartsSaver();
  PartsSaver(const PartsSaver&) = delete;
  PartsSaver& operator=(const PartsSaver&) = delete;

  // `model` has the names that the checkpoint gets, of which several may be of one tensor; `rest` what is in
  // no part, which rank 0 gives. In the background it returns when the state has been copied, after the save
  // before has ended. Collective. Throws AgreedError when a rank cannot write; in the background that is a
  // warning, the older checkpoints stand, and finish() says it again.
  void save(const Context& context, const Request& request, ShardedState state, const NamedTensors& model,
            CheckpointContents rest);

  // Waits until what is written in the background is complete and on the disk. Collective. Throws AgreedError
  // when it could not be written.
  void finish(const Context& context);

  // Drops what is being written in the background: the other ranks may be gone. Not collective.
  void abandon() noexcept;

 private:
  class Writing;

  std::unique_ptr<Writing> writing_;
  OwnPart own_part_;
};

}  // namespace rondo
