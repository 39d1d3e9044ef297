#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace rondo {

// The tensor that holds the values of a parameter's gradient, to be read or changed in place: the gradient
// itself, or the values of a sparse one, which is coalesced first, since an index that stands twice would be
// changed in halves. Undefined where there is no gradient. One thread a parameter.
at::Tensor gradient_values(const at::Tensor& parameter);

// Scales the gradients of `parameters` down to the L2 norm `max_norm` over all of them, and returns the norm
// before: torch's clip_grad_norm_, which alone leaves sparse gradients as they are.
double clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm);

}  // namespace rondo
