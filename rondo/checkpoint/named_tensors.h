#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace rondo {

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

// Checks that `source` fits `target`: the same names, shapes and dtypes, and what `target` shares is shared
// or equal in `source`. Returns the function that copies the elements, for the caller to run when everything
// else has been checked too; of a tensor for which `take` returns true it is `take` that has put the value
// where it belongs. Throws DataError naming the first tensor of `target` that differs and how; `what`
// describes the source in it.
using TakeTensor = std::function<bool(const std::string& name, const at::Tensor& value)>;
std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const TakeTensor& take = {});

}  // namespace rondo
