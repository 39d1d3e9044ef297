#include "rondo/nn/gradient_values.h"

#include <torch/types.h>

namespace rondo {

at::Tensor gradient_values(const at::Tensor& parameter) {
  at::Tensor gradient = parameter.grad();
  if (!gradient.defined() || !gradient.is_sparse()) return gradient;
  gradient = gradient.coalesce();
  parameter.mutable_grad() = gradient;
  return gradient._values();
}

}  // namespace rondo
