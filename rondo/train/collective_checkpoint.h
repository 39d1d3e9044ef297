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

// On rank 0 what every rank gave, in rank order; elsewhere nothing, and nothing at all when no rank has
// anything. Names, shapes and dtypes may differ between ranks. Collective; takes the bytes of all ranks'
// states in memory of rank 0.
std::vector<CommunicationState> gather_states(const CommunicationState& own, const Group& group);

// The state of a training on all ranks of `group` as a checkpoint, to be written by save_together(): each
// tensor is put together on rank 0 when it is its turn. `model` has the names that the file gets, of which
// several may be of one tensor. What else a checkpoint holds is left to the caller. Collective; the tensors
// of `state` outlive the sources.
CheckpointContents collective_contents(ShardedState state, const NamedTensors& model, const Group& group);

// Writes a checkpoint on rank 0, of sources that all ranks make together: rank 0 has one tensor more than its
// own at a time. `contents` is the same on all ranks but for what is not a source, which rank 0 gives.
// `incremental` as save_checkpoint(). When rank 0 cannot write, all ranks learn why: AgreedError, as
// run_agreed(). Collective.
void save_together(const Context& context, const std::filesystem::path& root, std::int64_t step,
                   CheckpointContents contents, int keep, bool incremental = false);

}  // namespace rondo
