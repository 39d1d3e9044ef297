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

// `model` and all modules below it, in order of registration. In contrast to Module::modules() and
// Module::named_modules() the model need not be owned by a shared_ptr: it may be a variable on the stack.
std::vector<NamedModule> modules_of(const torch::nn::Module& model);

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

// Parameters that do not learn for as long as the object lives: requires_grad is false, so a forward pass
// that is recorded meanwhile gives them no gradients and leaves their `.grad` as it is. Gradients still pass
// through the model to its inputs. For a model that others learn through, such as a GAN's discriminator while
// the generator learns:
//
//   const rondo::FrozenParameters frozen(*discriminator);
//   loss(discriminator->forward(generator->forward(noise))).backward();
//
// The backward pass is cheaper than one whose gradients are thrown away. One thread uses an object, together
// with the model.
class [[nodiscard]] FrozenParameters {
 public:
  // Freezes those of the module's parameters that require gradients. The module need not outlive the object.
  explicit FrozenParameters(const torch::nn::Module& module);
  // They require gradients again.
  ~FrozenParameters();
  FrozenParameters(const FrozenParameters&) = delete;
  FrozenParameters& operator=(const FrozenParameters&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
};

// A layer whose backward pass makes a sparse gradient, of the rows that were looked up.
struct SparseLayer {
  std::string name;   // in the model, as "words"
  at::Tensor weight;  // whose gradient is sparse
};

// The layers of `module`, itself included, that make sparse gradients: each Embedding and EmbeddingBag with
// sparse(true). A layer that does its lookups itself is not among them.
std::vector<SparseLayer> sparse_layers(const torch::nn::Module& module);

}  // namespace rondo
