#pragma once

#include <torch/nn/module.h>

#include <set>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"

// What each rank has for itself of a prepared model (DdpOptions::ignored, ShardedOptions::ignored), and what
// checkpoints have of it.
namespace rondo {

// Parameters and buffers of `model`, which `prepared` was made of, under all their names, but for those that
// each rank has for itself: the names of a checkpoint. Communicates nothing.
NamedTensors saved_tensors(PreparedModel& prepared, const torch::nn::Module& model);

// Parameters and buffers of `model`, under all their names, whose tensors `kept` names under one of them.
NamedTensors tensors_named(const torch::nn::Module& model, const std::set<std::string>& kept);

// Parameters that an optimizer made of prepared.module(), or of `masters`, may hold and that this rank has
// for itself. `masters` may be null.
std::vector<at::Tensor> own_parameters(PreparedModel& prepared, const MasterWeights* masters);

// Without a name, at the end of `parameters`: as snapshot_optimizer() and prepare_optimizer() leave them out.
NamedTensors with_own_parameters(NamedTensors parameters, const std::vector<at::Tensor>& own);

}  // namespace rondo
