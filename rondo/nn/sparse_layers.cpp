#include "rondo/nn/sparse_layers.h"

#include <torch/nn/modules/embedding.h>

#include "rondo/nn/modules_of.h"

namespace rondo {

std::vector<SparseLayer> sparse_layers(const torch::nn::Module& module) {
  std::vector<SparseLayer> layers;
  for (const auto& [name, layer] : modules_of(module)) {
    const auto* embedding = layer->as<torch::nn::EmbeddingImpl>();
    const auto* bag = layer->as<torch::nn::EmbeddingBagImpl>();
    if (embedding != nullptr && embedding->options.sparse()) layers.push_back({name, embedding->weight});
    if (bag != nullptr && bag->options.sparse()) layers.push_back({name, bag->weight});
  }
  return layers;
}

}  // namespace rondo
