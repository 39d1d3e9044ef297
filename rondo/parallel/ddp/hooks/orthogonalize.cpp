#include "rondo/parallel/ddp/hooks/orthogonalize.h"

#include <torch/types.h>

namespace rondo {
namespace {

void gram_schmidt(at::Tensor& matrix, double epsilon) {
  const std::int64_t columns = matrix.size(1);
  for (std::int64_t i = 0; i < columns; ++i) {
    at::Tensor column = matrix.narrow(1, i, 1);
    const at::Tensor norm = column.norm(2, {0}, /*keepdim=*/true) + epsilon;
    column.div_(at::where(norm == 0, at::ones_like(norm), norm));
    if (i + 1 == columns) break;
    at::Tensor rest = matrix.narrow(1, i + 1, columns - i - 1);
    rest.sub_((column * rest).sum({0}, /*keepdim=*/true) * column);
  }
}

}  // namespace

void orthogonalize(at::Tensor& matrix, double epsilon) {
  const at::ScalarType dtype = matrix.scalar_type();
  if (matrix.size(1) <= 2 || dtype == at::kHalf || dtype == at::kBFloat16) {
    gram_schmidt(matrix, epsilon);
  } else {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
  }
}

}  // namespace rondo
