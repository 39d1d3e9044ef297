#pragma once

#include <torch/optim/optimizer.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "rondo/nn/shard.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/shard_directory.h"

namespace rondo {

// This process's part of the state of a training, by name and address. Checkpoints write it, and
// ShardDirectory moves it to other ranks, numbers of ranks and strategies. The tensors are the training's
// own.
struct ShardedState {
  std::vector<Shard> model = {};        // parameters as the optimizer updates them, then buffers
  std::vector<Shard> full_copies = {};  // additional full parameters on this rank, with the same values
  std::vector<Shard> optimizer = {};    // "optimizer/PARAMETER/exp_avg", sharded as the parameter
  // Type of the optimizer, options and parameters of its groups, counters by parameter: the same on all
  // ranks. Null without an optimizer.
  nlohmann::json optimizer_description = nullptr;
};

// Returns the shards that a rank's optimizer updates: parts().shards(), or their `masters`. `masters` may be
// null; otherwise they are the master weights of model.module(). Current after model.parts().flush().
std::vector<Shard> optimized_shards(PreparedModel& model, const MasterWeights* masters);

// Returns the present state of a prepared model. `optimizer` was constructed from model.module() or from
// `masters`; both may be null. Does not communicate: call model.parts().flush() first for the state after the
// last step.
ShardedState local_state(PreparedModel& model, torch::optim::Optimizer* optimizer,
                         const MasterWeights* masters = nullptr);

// Loads the state in `directory` into `optimizer`, which is of the same kind and over the parameters of
// `shards`: each rank gets the state of its shards. Collective. Throws DataError naming the difference before
// anything changes; `what` describes the source in the message.
void load_optimizer(torch::optim::Optimizer& optimizer, const std::vector<Shard>& shards,
                    const nlohmann::json& description, const ShardDirectory& directory,
                    const std::string& what);

}  // namespace rondo
