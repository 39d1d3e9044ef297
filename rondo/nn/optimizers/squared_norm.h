#pragma once

#include <ATen/core/Tensor.h>

namespace rondo {

// The sum of the squares of all elements, of complex numbers of their absolute values, as one float64 on the
// CPU. Any dtype with a point; any thread.
at::Tensor squared_norm(const at::Tensor& tensor);

}  // namespace rondo
