#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace rondo {

struct ModelTensor {
  std::string name;
  at::Tensor tensor;
};

// What data parallelism must know of a model. The tensors are handles on the model's own.
struct ModelTensors {
  std::vector<ModelTensor> parameters;
  std::vector<ModelTensor> buffers;
};

// All parameters and buffers below `model`, in order of registration; one that several modules share appears
// once, under its first name.
ModelTensors tensors_of(const torch::nn::Module& model);
ModelTensors tensors_of(const torch::jit::Module& model);

// Drops undefined tensors and repetitions of the same tensor.
ModelTensors without_repetitions(ModelTensors tensors);

// "float32 [10, 784]".
std::string describe_shape(const at::Tensor& tensor);

}  // namespace rondo
