#pragma once

#include <cstdint>
#include <filesystem>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// What a prepared model's parameters and buffers are made of, for a checkpoint: a parameter of which a rank
// has a part is put together when its source is asked for, by all ranks. `model` has the names that the file
// gets, and everything that is not divided. After ModelParts::settle(); the model outlives the sources.
TensorSources model_sources(PreparedModel& prepared, const NamedTensors& model);

// `model` with something of the same shape, dtype and name, without memory, for each parameter of which a
// rank has a part: what a checkpoint's tensors are compared with.
NamedTensors stand_ins(PreparedModel& prepared, const NamedTensors& model);

// What model_sources() is for an optimizer: adds its tensors and its description to `contents`. `model` gives
// its parameters their names where it has none of its own.
void add_optimizer(CheckpointContents& contents, PreparedModel& prepared, const NamedOptimizer& optimizer,
                   const NamedTensors& model);

// Writes a checkpoint on rank 0, of sources that all ranks make together: no rank has more than one tensor
// whole at a time. `contents` is the same on all ranks but for what is not a source, which rank 0 gives.
// When rank 0 cannot write, all ranks learn why: AgreedError, as run_agreed(). Collective.
void save_together(const Context& context, const std::filesystem::path& root, std::int64_t step,
                   CheckpointContents contents, int keep);

}  // namespace rondo
