#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

// Strategies by unit keep gradients in flat buffers with a place for every element. Sparse gradients are not
// supported.

// Returns the error for a parameter that got a sparse gradient.
UsageError sparse_gradient_error(const std::string& parameter);

// Throws UsageError naming the first layer that makes sparse gradients: an Embedding or EmbeddingBag with
// sparse(true). Detects the layer before the first backward pass.
void refuse_sparse_layers(const torch::nn::Module& module);

// Tensors that hold the gradients of a unit's parameters between autograd and the reduction. They are the
// parameters themselves, or, if gradients are reduced in another dtype, stand-ins of that dtype, so that
// several local passes accumulate in it. Not thread-safe.
class GradientBuffers {
 public:
  // `dtype` is the dtype in which gradients are reduced.
  GradientBuffers(const std::vector<ModelTensor>& parameters, at::ScalarType dtype);

  // Moves the content of the parameters' `.grad` to the stand-ins and adds it to their gradients. No-op if
  // tensors() are the parameters. Throws UsageError naming the parameter if a gradient is sparse.
  void take();

  // Returns one tensor per parameter, with its name and shape. Only `.grad`, dtype and shape may be used.
  const std::vector<ModelTensor>& tensors() const { return gradient_buffers_; }
  at::ScalarType dtype() const { return dtype_; }

 private:
  std::vector<ModelTensor> parameters_;
  std::vector<ModelTensor> gradient_buffers_;
  at::ScalarType dtype_;
  bool apart_;
};

}  // namespace rondo
