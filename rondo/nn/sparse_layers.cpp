#include "rondo/nn/sparse_layers.h"

#include <torch/nn/modules/embedding.h>

namespace rondo {

std::vector<SparseLayer> sparse_layers(const torch::nn::Module& module) {
  std::vector<SparseLayer> layers;
  for (const auto& layer : module.named_modules()) {
    const auto* embedding = layer.value()->as<torch::nn::EmbeddingImpl>();
    const auto* bag = layer.value()->as<torch::nn::EmbeddingBagImpl>();
    if (embedding != nullptr && embedding->options.sparse())
      layers.push_back({layer.key(), embedding->weight});
    if (bag != nullptr && bag->options.sparse()) layers.push_back({layer.key(), bag->weight});
  }
  return layers;
}

}  // namespace rondo
