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

// A parameter or buffer under the first of its names.
struct ModelTensor {
  std::string name;   // dotted, as in the model
  at::Tensor tensor;  // the parameter or buffer
};

// What strategies must know of a model. The tensors are handles on the model's own.
struct ModelTensors {
  std::vector<ModelTensor> parameters;  // each once, in order of registration
  std::vector<ModelTensor> buffers;     // likewise

  std::vector<at::Tensor> buffer_tensors() const;  // without their names
  // Parameters, then buffers.
  std::vector<at::Tensor> all_tensors() const;
};

// All parameters and buffers below `model`, in order of registration; one that several modules share appears
// once, under its first name.
ModelTensors tensors_of(const torch::nn::Module& model);
ModelTensors tensors_of(const torch::jit::Module& model);  // likewise of a TorchScript module

// Drops undefined tensors and repetitions of the same tensor.
ModelTensors without_repetitions(ModelTensors tensors);

// Without the parameters and buffers of these names. Throws UsageError for a name that none of them has.
ModelTensors without_ignored(ModelTensors tensors, const std::vector<std::string>& ignored);

// The parameters of `module` in order of registration, each once: Module::parameters() lists one that several
// modules share as often as it is registered, and an optimizer would step it as often.
std::vector<at::Tensor> distinct_parameters(const torch::nn::Module& module);

// "float32 [10, 784]".
std::string describe_shape(const at::Tensor& tensor);

}  // namespace rondo
