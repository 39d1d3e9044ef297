#include "rondo/parallel/gradients/fingerprint.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>

namespace rondo {

std::uint64_t fingerprint(const at::Tensor& tensor) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;  // odd multiplier that spreads both inputs over all bits
  std::uint64_t bits = 0;
  if (tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.numel() > 0)
    std::memcpy(&bits, tensor.const_data_ptr(), std::min<std::size_t>(sizeof bits, tensor.element_size()));
  return (bits ^ (bits >> 31U)) * odd + static_cast<std::uint64_t>(tensor._version()) * (odd + 2);
}

}  // namespace rondo
