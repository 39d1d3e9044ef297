#include "rondo/strategy/state_dict.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <iterator>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/strategy/own_parameters.h"

namespace rondo {
namespace {

constexpr const char* kOptimizerSource = "the optimizer's state dict";

[[noreturn]] void refuse(const std::vector<std::string>& wrong) {
  throw UsageError(str("the state dict does not fit the model: ", join(wrong, "; ")));
}

}  // namespace

std::vector<Shard> sharded_state_dict(PreparedModel& model) {
  model.parts().flush();
  std::vector<Shard> state = local_state(model, nullptr).model;
  for (Shard& shard : state) shard.local = shard.local.detach();
  return state;
}

std::vector<ModelTensor> full_state_dict(PreparedModel& model) {
  model.parts().flush();
  ShardedState own = local_state(model, nullptr);
  std::vector<ModelTensor> state;
  for (const Shard& shard : own.model) state.push_back({shard.name, shard.local.detach()});
  if (!model.parts().optimizes_shards()) return state;
  // Excludes copies in memory that ranks share: they would change during the read when another rank
  // continues.
  if (!model.parts().shares_memory())
    std::move(own.full_copies.begin(), own.full_copies.end(), std::back_inserter(own.model));
  const ShardDirectory directory(std::move(own.model), model.parts().group());
  for (ModelTensor& tensor : state) tensor.tensor = directory.full(tensor.name);
  return state;
}

void load_full_state_dict(PreparedModel& model, const std::vector<ModelTensor>& state) {
  const std::vector<Shard> own = sharded_state_dict(model);
  std::map<std::string, at::Tensor> given;
  for (const ModelTensor& tensor : state) given.emplace(tensor.name, tensor.tensor);
  std::vector<std::string> wrong;
  for (const Shard& shard : own) {
    const auto found = given.find(shard.name);
    if (found == given.end()) {
      wrong.push_back(str("'", shard.name, "' is missing"));
    } else if (found->second.sizes() != shard.global_sizes) {
      wrong.push_back(str("'", shard.name, "' is [", join(found->second.sizes(), ", "), "] and not [",
                          join(shard.global_sizes, ", "), "]"));
    }
  }
  for (const auto& [name, tensor] : given) {
    if (find_shard(own, name) == nullptr) wrong.push_back(str("the model has no '", name, "'"));
  }
  if (!wrong.empty()) refuse(wrong);
  const at::NoGradGuard no_grad;
  for (const Shard& shard : own) shard.local.copy_(cut(given.at(shard.name), shard));
  model.parts().publish_shards();
}

void load_sharded_state_dict(PreparedModel& model, const std::vector<Shard>& state) {
  std::vector<Shard> own = sharded_state_dict(model);
  const ShardDirectory directory(state, model.parts().group());
  const std::vector<std::string> wrong = directory.fetch(own, /*exact=*/true);
  if (!wrong.empty()) refuse(wrong);
  model.parts().publish_shards();
}

ShardedState sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer) {
  model.parts().flush();
  ShardedState state = local_state(model, &optimizer);
  return {.optimizer = std::move(state.optimizer),
          .optimizer_description = std::move(state.optimizer_description)};
}

OptimizerSnapshot full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer) {
  ShardedState own = sharded_optimizer_state_dict(model, optimizer);
  OptimizerSnapshot state{.description = std::move(own.optimizer_description),
                          .tensors = locals_of(own.optimizer)};
  if (!model.parts().optimizes_shards()) return state;
  const ShardDirectory directory(std::move(own.optimizer), model.parts().group());
  for (NamedTensor& entry : state.tensors) entry.tensor = directory.full(entry.name);
  return state;
}

void load_full_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                    const OptimizerSnapshot& state) {
  model.parts().flush();
  const std::vector<Shard> shards = model.parts().shards();
  prepare_optimizer(kOptimizerName, optimizer,
                    with_own_parameters(locals_of(shards), own_parameters(model, nullptr)), state.description,
                    cut_optimizer(kOptimizerName, stored_tensors(state.tensors), shards), kOptimizerSource,
                    /*trusts_archive=*/true)();
}

void load_sharded_optimizer_state_dict(PreparedModel& model, torch::optim::Optimizer& optimizer,
                                       const ShardedState& state) {
  model.parts().flush();
  std::vector<Shard> shards = model.parts().shards();
  for (const at::Tensor& own : own_parameters(model, nullptr)) shards.push_back(full_shard("", own));
  load_optimizer(optimizer, shards, state.optimizer_description,
                 ShardDirectory(state.optimizer, model.parts().group()), kOptimizerSource);
}

}  // namespace rondo
