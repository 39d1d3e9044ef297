#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/strategy/strategy.h"
#include "rondo/train/trainer.h"

namespace rondo {

// The work behind Trainer::evaluate and predict. Batches are cut the same way for any number of ranks, batch
// b is computed by rank b modulo the number of ranks, and sums of batches are added in float64 in batch
// order: results do not depend on the number of ranks, not even in the last bit, as long as the kernels
// behind the model do not. Nothing when options.stop_requested said so on some rank. Collective.
std::optional<std::map<std::string, double>> evaluate_exactly(
    Strategy& strategy, Training& training, const LossFunction& loss, const std::vector<Metric>& metrics,
    const Dataset& data, const EvaluateOptions& options, ForwardPasses passes);

// The model's outputs for all of `data`, or options.batches of it, in its order, on every rank. Collective.
Tensors outputs_of(Strategy& strategy, Training& training, const Dataset& data,
                   const EvaluateOptions& options, ForwardPasses passes);

}  // namespace rondo
