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

// A module of a model under its dotted name, which is empty for the model itself.
struct NamedModule {
  std::string name;           // dotted
  torch::nn::Module* module;  // valid as long as the model
};

// Returns `model` and all modules below it, in order of registration. In contrast to Module::modules() and
// Module::named_modules(), no shared_ptr needs to own the model: it may be a variable on the stack.
std::vector<NamedModule> modules_of(const torch::nn::Module& model);

// A parameter or buffer under the first of its names.
struct ModelTensor {
  std::string name;   // dotted, as in the model
  at::Tensor tensor;  // the parameter or buffer
};

// The parameters and buffers of a model. The tensors are handles to the model's own.
struct ModelTensors {
  std::vector<ModelTensor> parameters;  // each once, in order of registration
  std::vector<ModelTensor> buffers;     // likewise

  std::vector<at::Tensor> buffer_tensors() const;  // without their names
  // Returns parameters, then buffers.
  std::vector<at::Tensor> all_tensors() const;
};

// Returns all parameters and buffers below `model`, in order of registration. A tensor that several modules
// share appears once, under its first name.
ModelTensors tensors_of(const torch::nn::Module& model);
ModelTensors tensors_of(const torch::jit::Module& model);  // likewise for a TorchScript module

// Drops undefined tensors and repetitions of the same tensor.
ModelTensors without_repetitions(ModelTensors tensors);

// Returns the tensors without the parameters and buffers of these names. Throws UsageError for a name that
// does not exist.
ModelTensors without_ignored(ModelTensors tensors, const std::vector<std::string>& ignored);

// Returns the parameters of `module` in order of registration, each once. Module::parameters() lists a shared
// parameter as often as it is registered, and an optimizer would update it as often.
std::vector<at::Tensor> distinct_parameters(const torch::nn::Module& module);

// Returns dtype and shape: "float32 [10, 784]".
std::string describe_shape(const at::Tensor& tensor);

// A scope in which a module's parameters are frozen: their requires_grad is false, so a forward pass
// recorded meanwhile leaves their `.grad` unchanged. Gradients still pass through the model to its inputs.
// For a model through which gradients flow to another one, such as a GAN's discriminator in the generator's
// step:
//
//   const rondo::FrozenParameters frozen(*discriminator);
//   loss(discriminator->forward(generator->forward(noise))).backward();
//
// The backward pass is cheaper than computing and discarding the gradients. An object, together with the
// model, is used by one thread.
class [[nodiscard]] FrozenParameters {
 public:
  // Freezes the module's parameters that require gradients. The module need not outlive the object.
  explicit FrozenParameters(const torch::nn::Module& module);
  // Restores requires_grad of these parameters.
  ~FrozenParameters();
  FrozenParameters(const FrozenParameters&) = delete;
  FrozenParameters& operator=(const FrozenParameters&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
};

// A layer whose backward pass produces a sparse gradient of the rows that were looked up.
struct SparseLayer {
  std::string name;   // name in the model, such as "words"
  at::Tensor weight;  // parameter whose gradient is sparse
};

// Returns the layers of `module`, itself included, that produce sparse gradients: each Embedding and
// EmbeddingBag with sparse(true). Layers that do their lookups themselves are not detected.
std::vector<SparseLayer> sparse_layers(const torch::nn::Module& module);

}  // namespace rondo
