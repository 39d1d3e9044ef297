#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace rondo {

// Returns the tensor with the values of a parameter's gradient, to be read or changed in place: the gradient
// itself, or the values of a sparse gradient. Coalesces a sparse gradient first, because a repeated index
// would be changed in parts. Undefined without a gradient. At most one thread for each parameter.
at::Tensor gradient_values(const at::Tensor& parameter);

// Clipping by the L2 norm as torch::nn::utils::clip_grad_norm_ does, in three steps, so that ranks can sum
// between them. Sparse gradients count with their values. At most one thread for each parameter.

// Returns the values of all gradients (gradient_values()) that are defined and not empty.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters);
// Returns the sum of the squares of all elements, or of the absolute values of complex elements. Blocks until
// devices are finished.
double sum_of_squares(const std::vector<at::Tensor>& tensors);
// Scales `gradients`, all or some of those whose norm is `norm`, to the norm `max_norm`. A smaller norm
// leaves them unchanged; a NaN norm makes them NaN.
void scale_to_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm);

// Runs the three steps for gradients that this process holds completely. Returns the norm before clipping.
double clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm);

}  // namespace rondo
