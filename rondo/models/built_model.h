#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>

namespace rondo {

// What a family of models makes: the module, and its forward of one input.
struct BuiltModel {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

// Of a module with such a forward.
template <class Impl>
BuiltModel built(std::shared_ptr<Impl> module) {
  return {module, [module](const at::Tensor& input) { return module->forward(input); }};
}

}  // namespace rondo
