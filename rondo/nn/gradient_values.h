#pragma once

#include <ATen/core/Tensor.h>

namespace rondo {

// The tensor that holds the values of a parameter's gradient, to be read or changed in place: the gradient
// itself, or the values of a sparse one, which is coalesced first, since an index that stands twice would be
// changed in halves. Undefined where there is no gradient. One thread a parameter.
at::Tensor gradient_values(const at::Tensor& parameter);

}  // namespace rondo
