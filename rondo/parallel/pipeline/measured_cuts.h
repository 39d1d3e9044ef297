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

// Returns the cost of each layer for these samples on this process: time of forward and backward, and memory
// with Adam. The time is the shorter of two passes after a warm-up. Does not change the model's values.
// Throws UsageError like layers_of().
std::vector<pipeline::UnitCost> measure_layers(const Model& model, const Batch& batch);

// Returns the cuts of `model` for the pipeline of context.mesh(), as PipelineOptions::stage_cuts, balanced by
// rank 0's measurements with a micro-batch of `batch`, the batch of a replica. No rank exceeds `limit` bytes;
// 0 is no limit. Collective. Throws UsageError like balanced_cuts(), on all ranks.
std::vector<std::string> measured_stage_cuts(const Context& context, const Model& model, const Batch& batch,
                                             const PipelineOptions& options, std::uint64_t limit);

}  // namespace rondo
