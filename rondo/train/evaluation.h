#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/strategy/strategy.h"
#include "rondo/train/trainer.h"

namespace rondo {

// How ranks make the forward passes of an evaluation.
enum class ForwardPasses {
  alone,     // each has the whole model
  together,  // all as many, since they gather its units in them
};

// The work behind Trainer::evaluate and predict. Batches are cut the same way for any number of ranks, batch
// b is computed by rank b modulo the number of ranks, and sums of batches are added in float64 in batch
// order: results do not depend on the number of ranks, not even in the last bit, as long as the kernels
// behind the model do not. Collective.
std::map<std::string, double> evaluate_exactly(Strategy& strategy, const Model& model, c10::Device device,
                                               const LossFunction& loss, const std::vector<Metric>& metrics,
                                               const Dataset& data, std::int64_t batch_size,
                                               ForwardPasses passes);

// Outputs for all of `data` in its order, on every rank. Collective.
at::Tensor predict_all(Strategy& strategy, const Model& model, c10::Device device, const Dataset& data,
                       std::int64_t batch_size, ForwardPasses passes);

}  // namespace rondo
