#pragma once

#include <torch/nn/module.h>

#include <string>

#include "rondo/base/error.h"

namespace rondo {

// Strategies by unit keep gradients in flat buffers, in which every element has its place; sparse ones have
// none.

// What to throw for a parameter that got a sparse gradient.
UsageError sparse_gradient_error(const std::string& parameter);

// Throws UsageError naming the first layer that makes sparse gradients: an Embedding or EmbeddingBag with
// sparse(true). Sooner than the first backward pass.
void refuse_sparse_layers(const torch::nn::Module& module);

}  // namespace rondo
