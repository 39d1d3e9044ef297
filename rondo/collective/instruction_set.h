#pragma once

#include <cstdint>

namespace rondo {

// The builds that loops over numbers come in (see rondo_reduction_kernels in cmake/RondoLayer.cmake).
enum class InstructionSet : std::uint8_t {
  baseline,
  avx2,   // with f16c
  avx512  // f, bw, vl and dq
};

// The widest that this processor and this build have.
InstructionSet instruction_set();

}  // namespace rondo
