#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace rondo {

// A layer whose backward pass makes a sparse gradient, of the rows that were looked up.
struct SparseLayer {
  std::string name;   // in the model, as "words"
  at::Tensor weight;  // whose gradient is sparse
};

// The layers of `module`, itself included, that make sparse gradients: each Embedding and EmbeddingBag with
// sparse(true). A layer that does its lookups itself is not among them.
std::vector<SparseLayer> sparse_layers(const torch::nn::Module& module);

}  // namespace rondo
