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

// A tensor with its name.
struct NamedTensor {
  std::string name;   // dotted name, as in the model
  at::Tensor tensor;  // reference to the model's tensor
};

// Tensors by name, in the model's order. A tensor that a model uses in two places appears under both names as
// the same at::Tensor (at::Tensor::is_same).
using NamedTensors = std::vector<NamedTensor>;

// Returns all parameters, then all buffers, by dotted name with `prefix` ("generator." for one of two
// models). The tensors are the module's own, not copies.
NamedTensors named_tensors(const torch::nn::Module& module, const std::string& prefix = "");
// Same for a TorchScript module.
NamedTensors named_tensors(const torch::jit::Module& module, const std::string& prefix = "");

// Returns the shards' local tensors, by name.
NamedTensors locals_of(const std::vector<Shard>& shards);
// Returns the first shard with that name; null if there is none.
const Shard* find_shard(const std::vector<Shard>& shards, const std::string& name);
// Returns the further names of tensors that appear under several names, each mapped to the name under which
// the tensor is stored: the first one that `is_stored` accepts. Without `is_stored`, the first of all.
std::map<std::string, std::string> shared_names(
    const NamedTensors& tensors, const std::function<bool(const std::string& name)>& is_stored = {});

// State of an optimizer by parameter name. Detects a model with another parameter order, or an optimizer with
// other groups, instead of mixing up the states silently.
struct OptimizerSnapshot {
  nlohmann::json description;  // type; options and parameter names of each group; counters of each parameter
  NamedTensors tensors;        // "NAME/PARAMETER/exp_avg"; references to the optimizer's tensors
};

}  // namespace rondo
