#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/backend/group.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/sharded_state.h"

namespace rondo {

// Returns all ranks' states on rank 0, in rank order; empty elsewhere, and if no rank has any. Names, shapes
// and dtypes may differ between ranks. Collective; rank 0 needs memory for the states of all ranks.
std::vector<CommunicationState> gather_states(const CommunicationState& own, const Group& group);

// Returns the state of a training on all ranks of `group` as a checkpoint for save_together(): each tensor is
// assembled on rank 0 when it is written. `model` has the names for the file; several may refer to one
// tensor. The caller adds the other contents of a checkpoint. Collective; the tensors of `state` must outlive
// the sources.
CheckpointContents collective_contents(ShardedState state, const NamedTensors& model, const Group& group);

// Writes a checkpoint on rank 0 from sources that all ranks produce together: rank 0 holds one tensor at a
// time besides its own. `contents` is the same on all ranks, except parts that are not sources, which rank 0
// provides. `incremental` as in save_checkpoint(). Throws AgreedError on all ranks if rank 0 cannot write, as
// run_agreed() does. Collective.
void save_together(const Context& context, const std::filesystem::path& root, std::int64_t step,
                   CheckpointContents contents, int keep, bool incremental = false);

}  // namespace rondo
