#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <optional>

namespace rondo {

// Clones a layer that derives from `Base`, a libtorch layer. Base::clone() returns a layer of type Base;
// tensors and options come from that clone, all other fields from `layer`.
template <class Base, class Layer>
std::shared_ptr<torch::nn::Module> clone_derived(const Layer& layer,
                                                 const std::optional<c10::Device>& device) {
  const std::shared_ptr<torch::nn::Module> base = layer.Base::clone(device);
  auto clone = std::make_shared<Layer>(layer);
  static_cast<Base&>(*clone) = dynamic_cast<const Base&>(*base);
  return clone;
}

}  // namespace rondo

namespace rondo::nn {

// A torch::nn::Linear whose forward is at::linear, as in Python. torch::nn::Linear of the C++ frontend
// multiplies and then adds the bias in a second pass over the output unless the input has two dimensions.
//
// Options, initialisation, names of parameters and state are those of torch::nn::Linear, from which the class
// derives: checkpoints interchange, and rules for torch::nn::LinearImpl apply. forward is not virtual in
// libtorch, so a member, variable or torch::nn::Sequential must have the layer in this type.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  // Shares the tensors of `other`.
  explicit LinearImpl(const torch::nn::LinearImpl& other) : torch::nn::LinearImpl(other) {}

  at::Tensor forward(const at::Tensor& input);  // [..., in_features] to [..., out_features]
  // Returns a copy of the layer with separate tensors, on `device` if given.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = {}) const override;
};
TORCH_MODULE(Linear);

}  // namespace rondo::nn
