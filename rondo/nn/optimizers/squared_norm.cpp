#include "rondo/nn/optimizers/squared_norm.h"

#include <torch/types.h>

namespace rondo {

at::Tensor squared_norm(const at::Tensor& tensor) {
  // A norm in float64 is not defined on complex numbers.
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.detach().resolve_conj()) : tensor;
  return at::linalg_vector_norm(real, 2, {}, false, at::kDouble).square().cpu();
}

}  // namespace rondo
