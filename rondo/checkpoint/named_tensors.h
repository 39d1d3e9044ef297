#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
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

struct StoredTensor;

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Tensors by name, in a model's order. A tensor that a model shares between two places stands under both
// names, as the same at::Tensor (at::Tensor::is_same).
using NamedTensors = std::vector<NamedTensor>;

// All parameters, then all buffers, by their dotted names, with `prefix` in front ("generator." for one model
// of two). The tensors are the module's own, not copies.
NamedTensors named_tensors(const torch::nn::Module& module, const std::string& prefix = "");
NamedTensors named_tensors(const torch::jit::Module& module, const std::string& prefix = "");

// The shards' own tensors, under their names.
NamedTensors locals_of(const std::vector<Shard>& shards);
// The first shard of that name; null when there is none.
const Shard* find_shard(const std::vector<Shard>& shards, const std::string& name);
// For tensors that stand under several names: each further name with the one under which the tensor is
// stored, which is the first that `is_stored` takes. Without `is_stored` that is the first of all.
std::map<std::string, std::string> shared_names(
    const NamedTensors& tensors, const std::function<bool(const std::string& name)>& is_stored = {});

// Checks that `source` fits `target`: the same names, shapes and dtypes, and what `target` shares is shared
// or equal in `source`. Returns the function that copies the elements, for the caller to run when everything
// else has been checked too. Of a tensor of which `shards` has one, that shard stands for it: its full shape
// and its dtype are compared, and the elements that it has are copied into it. Throws DataError naming the
// first tensor of `target` that differs and how; `what` describes the source in it.
std::function<void()> prepare_assign(const NamedTensors& target, const std::vector<StoredTensor>& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});
std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});

}  // namespace rondo
