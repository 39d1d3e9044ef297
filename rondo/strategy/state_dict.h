#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/strategy/sharded_state.h"

namespace rondo {

// Weights of a prepared model and state of its optimizer, by name, under any strategy. Parameters have the
// dtype that the optimizer updates (under a mixed precision policy these are the master weights), each under
// the first of its names. Parameters that are local to each rank (`ignored`) are omitted. The state of an
// optimizer that optimizer_fields.h lacks, such as LBFGS, is libtorch's archive, which may run code when it
// is loaded: do not load one from a file that you do not trust.

// Returns every full parameter and buffer, on every rank. Collective. Tensors may be the model's own and
// change with it.
std::vector<ModelTensor> full_state_dict(PreparedModel& model);
// Returns this rank's shard of each; parameters are the tensors that the optimizer updates. Collective; moves
// no parameter.
std::vector<Shard> sharded_state_dict(PreparedModel& model);

// Copies the values, the same on all ranks, into the model; training continues with them. Collective, outside
// a training step. Throws UsageError before anything changes, naming tensors that are missing, unknown or of
// another shape.
void load_full_state_dict(PreparedModel& model, const std::vector<ModelTensor>& state);
// Loads shards, each of which may be on any rank. Shards of another strategy or number of ranks are sent to
// the ranks that need them. Throws as load_full_state_dict(), and for elements that no rank provides.
void load_sharded_state_dict(PreparedModel& model, const std::vector<Shard>& state);

// Returns the optimizer's state with every tensor full, on every rank. Tensors are named
// "optimizer/PARAMETER/exp_avg". Collective.
OptimizerSnapshot full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer);
// Returns this rank's shards, which are the optimizer's own tensors, without the other parts of the state.
// Collective; moves nothing between ranks.
ShardedState sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer);

// Loads the state, including its options, into an optimizer of the same kind over the same parameters. The
// state may come from any strategy and number of ranks. Collective. Throws DataError naming the difference
// before anything changes.
void load_full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                    const OptimizerSnapshot& state);
// Loads shards, each of which may be on any rank.
void load_sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                       const ShardedState& state);

}  // namespace rondo
