#pragma once

#include <cstdint>
#include <vector>

#include "rondo/simulate/mesh_step.h"

namespace rondo::simulate {

// The most that a rank of a pipeline holds at a time during the passes of its micro-batches, beside
// parameters and optimizer state: activations, what a pass needs while it runs, messages, and gradients of
// parameters from the first pass that makes them. It replays the rank's actions as training runs them
// (rondo/parallel/pipeline). `splits`: backward passes come in two parts.
std::uint64_t peak_of_passes(const std::vector<LayerCost>& layers, const PipelineChoice& choice,
                             const pipeline::Schedule& schedule, int rank, int passes, bool splits);

}  // namespace rondo::simulate
