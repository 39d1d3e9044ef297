#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

// Strategies by unit keep gradients in flat buffers, in which every element has its place; sparse ones have
// none.

// Returns what to throw for a parameter that got a sparse gradient.
UsageError sparse_gradient_error(const std::string& parameter);

// Throws UsageError naming the first layer that makes sparse gradients: an Embedding or EmbeddingBag with
// sparse(true). Sooner than the first backward pass.
void refuse_sparse_layers(const torch::nn::Module& module);

// Where the gradients of a unit's parameters are between autograd and their reduction: in the parameters
// themselves, or, when they travel in another dtype, in stand-ins of that dtype, so that passes that are not
// reduced at once add up in it. One thread.
class GradientBuffers {
 public:
  // `dtype` is the one in which gradients travel.
  GradientBuffers(const std::vector<ModelTensor>& parameters, at::ScalarType dtype);

  // Moves what autograd has left in `.grad` of the parameters to the gradient_buffers, added to what is
  // there; nothing where these are the parameters. Throws UsageError naming the parameter of a sparse
  // gradient.
  void take();

  // One for each parameter, under its name and of its shape: to be used for `.grad`, dtype and shape alone.
  const std::vector<ModelTensor>& tensors() const { return gradient_buffers_; }
  at::ScalarType dtype() const { return dtype_; }

 private:
  std::vector<ModelTensor> parameters_;
  std::vector<ModelTensor> gradient_buffers_;
  at::ScalarType dtype_;
  bool apart_;
};

}  // namespace rondo
