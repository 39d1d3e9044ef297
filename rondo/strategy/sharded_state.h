#pragma once

#include <torch/optim/optimizer.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "rondo/nn/shard.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/shard_directory.h"

namespace rondo {

// What this process has of the state of a training, by name and address: what checkpoints write, and what
// moves to other ranks, numbers of ranks and strategies (ShardDirectory). The tensors are the training's own.
struct ShardedState {
  std::vector<Shard> model = {};        // parameters as the optimizer changes them, then buffers
  std::vector<Shard> full_copies = {};  // full parameters that are here besides, of the same values
  std::vector<Shard> optimizer = {};    // "optimizer/PARAMETER/exp_avg", where the parameter's shard is
  // The optimizer's type, the options and parameters of its groups, counters by parameter: the same on all
  // ranks. Null without an optimizer.
  nlohmann::json optimizer_description = nullptr;
};

// What a rank's optimizer changes: parts().shards(), or `masters` of them. `masters` may be null, and is of
// model.module() otherwise. Current after model.parts().flush().
std::vector<Shard> optimized_shards(PreparedModel& model, const MasterWeights* masters);

// The state of a prepared model as it is now. `optimizer` was made of model.module(), or of `masters`; both
// may be null. Communicates nothing: call model.parts().flush() before, for the state after the last step.
ShardedState local_state(PreparedModel& model, torch::optim::Optimizer* optimizer,
                         const MasterWeights* masters = nullptr);

// `optimizer`, of the same kind over the parameters that `shards` are of, goes on with the state that
// `directory` has of it: each rank gets what belongs to its shards. Collective. Throws DataError naming what
// differs, before anything is changed; `what` describes the source in it.
void load_optimizer(torch::optim::Optimizer& optimizer, const std::vector<Shard>& shards,
                    const nlohmann::json& description, const ShardDirectory& directory,
                    const std::string& what);

}  // namespace rondo
