#include "rondo/strategy/sharded_state.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/strategy/own_parameters.h"

namespace rondo {

std::vector<Shard> optimized_shards(PreparedModel& model, const MasterWeights* masters) {
  std::vector<Shard> shards = model.parts().shards();
  if (masters != nullptr) {
    for (Shard& shard : shards) shard.local = masters->of(shard.local);
  }
  return shards;
}

ShardedState local_state(PreparedModel& model, torch::optim::Optimizer* optimizer,
                         const MasterWeights* masters) {
  ModelParts& parts = model.parts();
  ShardedState state;
  state.model = optimized_shards(model, masters);
  if (masters == nullptr) state.full_copies = parts.full_copies();
  const int rank = std::max(0, parts.group().rank());
  if (optimizer != nullptr) {
    OptimizerSnapshot snapshot =
        snapshot_optimizer(kOptimizerName, *optimizer,
                           with_own_parameters(locals_of(state.model), own_parameters(model, masters)));
    state.optimizer_description = std::move(snapshot.description);
    for (const NamedTensor& entry : snapshot.tensors) {
      const Shard* const parameter = find_shard(state.model, parameter_of(kOptimizerName, entry.name));
      Shard shard = parameter != nullptr ? *parameter : full_shard("", entry.tensor, rank);
      shard.name = entry.name;
      shard.local = entry.tensor;
      state.optimizer.push_back(std::move(shard));
    }
  }
  for (const ModelTensor& buffer : parts.buffers())
    state.model.push_back(full_shard(buffer.name, buffer.tensor, rank));
  return state;
}

void load_optimizer(torch::optim::Optimizer& optimizer, const std::vector<Shard>& shards,
                    const nlohmann::json& description, const ShardDirectory& directory,
                    const std::string& what) {
  std::vector<Shard> wanted;
  for (const std::string& name : directory.names()) {
    const std::string parameter = parameter_of(kOptimizerName, name);
    const Shard* const found = parameter.empty() ? nullptr : find_shard(shards, parameter);
    if (found == nullptr && !parameter.empty()) continue;
    Shard shard = found != nullptr ? *found : directory.sample(name);
    const c10::Device device = found != nullptr ? found->local.device() : c10::Device(c10::kCPU);
    shard.local =
        at::empty(shard.local_sizes(), at::TensorOptions().dtype(directory.dtype(name)).device(device));
    shard.name = name;
    wanted.push_back(std::move(shard));
  }
  const std::vector<std::string> missing = directory.fetch(wanted, /*exact=*/true);
  if (!missing.empty())
    throw DataError(str(what, " does not fit optimizer '", kOptimizerName, "': ", join(missing, "; ")));
  prepare_optimizer(kOptimizerName, optimizer, locals_of(shards), description, locals_of(wanted), what,
                    /*trusts_archive=*/true)();
}

namespace {

std::set<std::string> names_of_parameters(ModelParts& parts) {
  std::set<std::string> names;
  for (const Shard& shard : parts.shards()) names.insert(shard.name);
  return names;
}

}  // namespace

NamedTensors saved_tensors(PreparedModel& prepared, const torch::nn::Module& model) {
  std::set<std::string> names = names_of_parameters(prepared.parts());
  for (const ModelTensor& buffer : prepared.parts().buffers()) names.insert(buffer.name);
  return tensors_named(model, names);
}

NamedTensors tensors_named(const torch::nn::Module& model, const std::set<std::string>& kept) {
  NamedTensors tensors = named_tensors(model);
  const auto further = shared_names(tensors, [&](const std::string& name) { return kept.contains(name); });
  std::erase_if(tensors, [&](const NamedTensor& entry) {
    return !kept.contains(entry.name) && !further.contains(entry.name);
  });
  return tensors;
}

std::vector<at::Tensor> own_parameters(PreparedModel& prepared, const MasterWeights* masters) {
  const std::set<std::string> names = names_of_parameters(prepared.parts());
  std::vector<at::Tensor> own;
  for (const ModelTensor& parameter : tensors_of(prepared.module()).parameters) {
    if (names.contains(parameter.name)) continue;
    own.push_back(masters != nullptr ? masters->of(parameter.tensor) : parameter.tensor);
  }
  return own;
}

NamedTensors with_own_parameters(NamedTensors parameters, const std::vector<at::Tensor>& own) {
  for (const at::Tensor& parameter : own) parameters.push_back({"", parameter});
  return parameters;
}

}  // namespace rondo
