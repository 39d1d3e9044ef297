#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace rondo {

// The tensor that holds the values of a parameter's gradient, to be read or changed in place: the gradient
// itself, or the values of a sparse one, which is coalesced first, since an index that stands twice would be
// changed in halves. Undefined where there is no gradient. One thread a parameter.
at::Tensor gradient_values(const at::Tensor& parameter);

// Clipping by the L2 norm, as torch::nn::utils::clip_grad_norm_, in three steps between which ranks may add
// up what each of them has. Sparse gradients count with their values. One thread a parameter.

// The values of the parameters' gradients (gradient_values()) that are there and have elements.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters);
// The sum of the squares of all elements; of complex ones, of their absolute values. Waits for devices.
double sum_of_squares(const std::vector<at::Tensor>& tensors);
// Scales gradients, which are all or a part of those whose norm is `norm`, so that it becomes `max_norm`;
// those with a lower norm stay, those whose norm is NaN become NaN.
void scale_to_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm);

// The three steps for gradients that this process has all of: returns the norm before.
double clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm);

}  // namespace rondo
