#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/nn/shard.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace rondo {

// A tensor and what it is called.
struct NamedTensor {
  std::string name;   // dotted, as in the model
  at::Tensor tensor;  // a handle on the model's own
};

// Tensors by name, in a model's order. A tensor that a model shares between two places stands under both
// names, as the same at::Tensor (at::Tensor::is_same).
using NamedTensors = std::vector<NamedTensor>;

// All parameters, then all buffers, by their dotted names, with `prefix` in front ("generator." for one model
// of two). The tensors are the module's own, not copies.
NamedTensors named_tensors(const torch::nn::Module& module, const std::string& prefix = "");
// The same of a TorchScript module.
NamedTensors named_tensors(const torch::jit::Module& module, const std::string& prefix = "");

// The shards' own tensors, under their names.
NamedTensors locals_of(const std::vector<Shard>& shards);
// The first shard of that name; null when there is none.
const Shard* find_shard(const std::vector<Shard>& shards, const std::string& name);
// For tensors that stand under several names: each further name with the one under which the tensor is
// stored, which is the first that `is_stored` takes. Without `is_stored` that is the first of all.
std::map<std::string, std::string> shared_names(
    const NamedTensors& tensors, const std::function<bool(const std::string& name)>& is_stored = {});

// What an optimizer remembers, by parameter NAME: a model whose parameters are made in another order, or an
// optimizer with other groups of the same parameters in memory, is noticed instead of silently mixed up.
struct OptimizerSnapshot {
  nlohmann::json description;  // type, options and parameter names of each group, counters of each parameter
  NamedTensors tensors;        // "NAME/PARAMETER/exp_avg"; the optimizer's own tensors
};

}  // namespace rondo
