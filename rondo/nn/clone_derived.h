#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>

namespace rondo {

// Clones a layer that derives from `Base`, one of libtorch's. Base::clone() knows Base alone, and gives a
// layer of that type: its tensors and options are taken from there, all other fields are copied from `layer`.
template <class Base, class Layer>
std::shared_ptr<torch::nn::Module> clone_derived(const Layer& layer,
                                                 const std::optional<c10::Device>& device) {
  const std::shared_ptr<torch::nn::Module> base = layer.Base::clone(device);
  auto clone = std::make_shared<Layer>(layer);
  static_cast<Base&>(*clone) = dynamic_cast<const Base&>(*base);
  return clone;
}

}  // namespace rondo
