#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/strategy/sharded_state.h"

namespace rondo {

// Weights of a prepared model and what its optimizer remembers, by name, whatever its strategy. Parameters
// are in the dtype that the optimizer changes (under a mixed precision policy these are the master weights),
// each under the first of its names. Those that each rank has for itself (`ignored`) are left out. The state
// of an optimizer that rondo does not know is libtorch's archive, which may run code when it is loaded: give
// these functions none of a file that you do not trust.

// Every parameter and buffer, full, on every rank. Collective. Tensors may be the model's own: they change
// with it.
std::vector<ModelTensor> full_state_dict(PreparedModel& model);
// What this rank has of each: parameters are the tensors that the optimizer changes. Collective, moves no
// parameter.
std::vector<Shard> sharded_state_dict(PreparedModel& model);

// Copies the values into the model, the same on all ranks; training goes on with them. Collective, outside of
// a training step. Throws UsageError, before anything is changed, naming the tensors that are missing,
// unknown or of another shape.
void load_full_state_dict(PreparedModel& model, const std::vector<ModelTensor>& state);
// The same from shards, each on any one of the ranks: of another strategy or number of ranks they are sent to
// where this model has its own. Also an error are elements that no rank gives.
void load_sharded_state_dict(PreparedModel& model, const std::vector<Shard>& state);

// What the optimizer remembers, every tensor full, on every rank. Tensors are named
// "optimizer/PARAMETER/exp_avg". Collective.
OptimizerSnapshot full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer);
// This rank's shards, which are the optimizer's own tensors; nothing else of the state is there. Collective,
// moves nothing between ranks.
ShardedState sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer);

// The optimizer, of the same kind over the same parameters, goes on with that; its options are the state's,
// too. From under any strategy and number of ranks. Collective. Throws DataError naming what differs, before
// anything is changed.
void load_full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                    const OptimizerSnapshot& state);
// The same from shards, each on any one of the ranks.
void load_sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                       const ShardedState& state);

}  // namespace rondo
