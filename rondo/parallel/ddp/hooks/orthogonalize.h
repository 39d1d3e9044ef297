#pragma once

#include <ATen/core/Tensor.h>

namespace rondo {

// Makes the columns of a matrix of at least as many rows as columns orthonormal, in place: modified
// Gram-Schmidt for up to two columns and for half precision, a QR factorisation beyond (as PyTorch's PowerSGD
// does, so that results compare). `epsilon` is added to the norms of Gram-Schmidt. A column of zeros stays
// zero, where dividing by its norm would give NaN.
void orthogonalize(at::Tensor& matrix, double epsilon);

}  // namespace rondo
