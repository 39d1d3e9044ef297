#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/strategy/strategy.h"
#include "rondo/train/trainer.h"

namespace rondo {

// Implements Trainer::evaluate. The division into batches does not depend on the number of ranks; batch b is
// computed by rank b modulo the number of ranks; sums of batches are added in float64 in batch order. So
// results are bit-identical for any number of ranks, provided that the model's kernels are deterministic.
// Returns nullopt if options.stop_requested returned true on any rank. Collective.
std::optional<std::map<std::string, double>> evaluate_exactly(
    Strategy& strategy, Training& training, const LossFunction& loss, const std::vector<Metric>& metrics,
    const Dataset& data, const EvaluateOptions& options, ForwardPasses passes);

// Returns the model's outputs for all of `data`, or options.batches of it, in order, on every rank.
// Implements Trainer::predict. Collective.
Tensors outputs_of(Strategy& strategy, Training& training, const Dataset& data,
                   const EvaluateOptions& options, ForwardPasses passes);

}  // namespace rondo
