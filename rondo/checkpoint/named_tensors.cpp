#include "rondo/checkpoint/named_tensors.h"

#include <torch/nn/module.h>
#include <torch/script.h>

#include <algorithm>

namespace rondo {

NamedTensors named_tensors(const torch::nn::Module& module, const std::string& prefix) {
  NamedTensors result;
  for (const auto& p : module.named_parameters()) result.push_back({prefix + p.key(), p.value()});
  for (const auto& b : module.named_buffers()) result.push_back({prefix + b.key(), b.value()});
  return result;
}

NamedTensors named_tensors(const torch::jit::Module& module, const std::string& prefix) {
  NamedTensors result;
  for (const auto& p : module.named_parameters()) result.push_back({prefix + p.name, p.value});
  for (const auto& b : module.named_buffers()) result.push_back({prefix + b.name, b.value});
  return result;
}

NamedTensors locals_of(const std::vector<Shard>& shards) {
  NamedTensors result;
  for (const Shard& shard : shards) result.push_back({shard.name, shard.local});
  return result;
}

const Shard* find_shard(const std::vector<Shard>& shards, const std::string& name) {
  const auto found =
      std::find_if(shards.begin(), shards.end(), [&](const Shard& shard) { return shard.name == name; });
  return found != shards.end() ? &*found : nullptr;
}

std::map<std::string, std::string> shared_names(
    const NamedTensors& tensors, const std::function<bool(const std::string& name)>& is_stored) {
  std::map<const c10::TensorImpl*, std::string> stored;
  for (const NamedTensor& t : tensors) {
    if (!is_stored || is_stored(t.name)) stored.emplace(t.tensor.unsafeGetTensorImpl(), t.name);
  }
  std::map<std::string, std::string> shared;
  for (const NamedTensor& t : tensors) {
    const auto found = stored.find(t.tensor.unsafeGetTensorImpl());
    if (found != stored.end() && found->second != t.name) shared.emplace(t.name, found->second);
  }
  return shared;
}

}  // namespace rondo
