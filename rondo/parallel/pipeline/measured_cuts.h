#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/model.h"
#include "rondo/parallel/pipeline/pipeline_options.h"
#include "rondo/pipeline/stage_cuts.h"

namespace rondo {

// What each layer of the model takes for these samples on this process, forward and backward, the shorter of
// two passes after one that nobody measures; its memory with Adam. The model's values stay as they are.
// Throws UsageError as layers_of() does.
std::vector<pipeline::UnitCost> measure_layers(const Model& model, const Batch& batch);

// Where to cut `model` for the pipeline of context.mesh(), as PipelineOptions::stage_cuts: balanced by what
// rank 0 measures with a micro-batch of `batch`, the batch of a replica. No rank has more than `limit` bytes;
// 0 is no limit. Collective. Throws UsageError as balanced_cuts() does, on all ranks.
std::vector<std::string> measured_stage_cuts(const Context& context, const Model& model, const Batch& batch,
                                             const PipelineOptions& options, std::uint64_t limit);

}  // namespace rondo
