#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rondo {

// Returns a number that an optimizer step almost surely changes, if the fingerprints of several parameters
// are summed. The inputs are the first element (at most 8 bytes) of a CPU tensor and the version counter,
// which some optimizers do not increment.
std::uint64_t fingerprint(const at::Tensor& tensor);

}  // namespace rondo
