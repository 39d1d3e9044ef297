#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rondo {

// A number that an optimizer's step changes, as a sum over several parameters does almost surely: of the
// first element, where the tensor is on the CPU, and of the count of changes in place, which some optimizers
// bypass. Reads 8 bytes.
std::uint64_t fingerprint(const at::Tensor& tensor);

}  // namespace rondo
