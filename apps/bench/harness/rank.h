#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/bench/harness/fleet.h"
#include "rondo/backend/context.h"
#include "rondo/models/model.h"
#include "rondo/strategy/strategy.h"
#include "rondo/strategy/training.h"

namespace rondo::bench {

// Returns the batch of one rank in one step, the same numbers as bench/peers/step.py makes: drawn by
// splitmix64 from (step, rank), nothing else. Of a GPT tokens that mostly count upwards, so that it has
// something to learn; else float32 pixels in [0, 1) and random classes.
Batch synthetic_batch(const StepCase& training, std::int64_t step, int rank);

// Returns the case's optimizer, with PyTorch's default weight decay, which the peers have.
std::unique_ptr<torch::optim::Optimizer> optimizer_of(const StepCase& training, torch::nn::Module& module);

// Returns the case's model with the initial weights.
Model initial_model(const StepCase& training);

// Prepares a worker's process: flushes denormals, since dead units leave Adam with averages that shrink into
// them, at three times the step; and reads the model's configuration. PyTorch's workers do the same.
void begin_worker(WorkerOptions& options, int threads = 1);

// Writes the initial weights of a model to `training.weights`, and sets its configuration.
void write_initial_weights(StepCase& training, const nlohmann::json& config = nlohmann::json::object());

}  // namespace rondo::bench
