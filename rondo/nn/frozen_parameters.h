#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::nn {
class Module;
}

namespace rondo {

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

}  // namespace rondo
