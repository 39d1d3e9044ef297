#include "rondo/nn/layers.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <unordered_set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

ModelLayer make_layer(std::string name, const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                      ForwardFunction forward, const std::vector<at::Tensor>& others) {
  ModelLayer layer{.name = std::move(name), .forward = std::move(forward)};
  for (const auto& module : modules) {
    if (!module) continue;
    for (const at::Tensor& tensor : tensors_of(*module).all_tensors()) layer.tensors.push_back(tensor);
  }
  layer.tensors.insert(layer.tensors.end(), others.begin(), others.end());
  return layer;
}

std::vector<ModelLayer> layers_of(torch::nn::Module& sequential, const std::string& name) {
  auto* const container = dynamic_cast<torch::nn::SequentialImpl*>(&sequential);
  if (container == nullptr) throw UsageError(str("module '", name, "' is no torch::nn::Sequential"));
  std::vector<ModelLayer> layers;
  const auto children = container->named_children();
  auto child = children.begin();
  for (torch::nn::AnyModule each : *container) {
    const std::string path = name.empty() ? child->key() : str(name, ".", child->key());
    layers.push_back(make_layer(path, {each.ptr()}, [each](const at::Tensor& input) mutable {
      return each.forward<at::Tensor>(input);
    }));
    ++child;
  }
  return layers;
}

std::vector<ModelLayer> layers_of(const Model& model) {
  std::vector<ModelLayer> layers;
  if (auto* const sequence = dynamic_cast<LayerSequence*>(model.module.get())) {
    layers = sequence->layers();
  } else if (dynamic_cast<torch::nn::SequentialImpl*>(model.module.get()) != nullptr) {
    layers = layers_of(*model.module, "");
  } else {
    throw UsageError(str("model '", model.name,
                         "' cannot be cut into stages: its module is neither a torch::nn::Sequential nor a "
                         "rondo::LayerSequence"));
  }
  std::unordered_set<const void*> used;
  for (const ModelLayer& layer : layers) {
    for (const at::Tensor& tensor : layer.tensors) used.insert(tensor.unsafeGetTensorImpl());
  }
  for (const ModelTensor& parameter : tensors_of(*model.module).parameters) {
    if (!used.contains(parameter.tensor.unsafeGetTensorImpl()))
      throw UsageError(str("model '", model.name, "': no layer uses parameter '", parameter.name, "'"));
  }
  return layers;
}

}  // namespace rondo
