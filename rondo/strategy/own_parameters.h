#pragma once

#include <torch/nn/module.h>

#include <set>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"

// Parameters that are local to each rank of a prepared model (DdpOptions::ignored, ShardedOptions::ignored),
// and their treatment in checkpoints.
namespace rondo {

// Returns the tensors of a checkpoint: parameters and buffers of `model`, from which `prepared` was made,
// under all their names, without those that are local to each rank. Does not communicate.
NamedTensors saved_tensors(PreparedModel& prepared, const torch::nn::Module& model);

// Returns parameters and buffers of `model`, under all their names, for tensors with a name in `kept`.
NamedTensors tensors_named(const torch::nn::Module& model, const std::set<std::string>& kept);

// Returns the parameters local to this rank that an optimizer of prepared.module(), or of `masters`, may
// hold. `masters` may be null.
std::vector<at::Tensor> own_parameters(PreparedModel& prepared, const MasterWeights* masters);

// Appends `own` without names to `parameters`: snapshot_optimizer() and prepare_optimizer() skip these.
NamedTensors with_own_parameters(NamedTensors parameters, const std::vector<at::Tensor>& own);

}  // namespace rondo
