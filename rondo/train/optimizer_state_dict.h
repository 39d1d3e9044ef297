#pragma once

#include <torch/optim/optimizer.h>

#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// What an optimizer of a prepared model remembers, by parameter name: the optimizer's half of
// rondo/strategy/state_dict.h. Tensors are named "optimizer/PARAMETER/exp_avg".

// Every tensor whole, on every rank. Collective.
OptimizerSnapshot full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer);
// This rank's parts, which are the optimizer's own tensors. Collective, moves nothing between ranks.
OptimizerSnapshot sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer);

// The optimizer, of the same kind over the same parameters, goes on with that; its options are the state's,
// too. Of the full state each rank takes its parts, under any strategy. Throws DataError naming what differs,
// before anything is changed.
void load_full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                    const OptimizerSnapshot& state);
void load_sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                       const OptimizerSnapshot& state);

}  // namespace rondo
