#pragma once

#include <cstdint>

namespace rondo {

// The builds of loops over elements (see rondo_reduction_kernels in cmake/RondoLayer.cmake).
enum class InstructionSet : std::uint8_t {
  baseline,
  avx2,   // with f16c
  avx512  // f, bw, vl and dq
};

// Returns the widest set that this processor and this build have.
InstructionSet instruction_set();

}  // namespace rondo
