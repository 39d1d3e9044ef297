#include "rondo/collective/codec/kernels.h"

#include <array>

#include "rondo/collective/instruction_set.h"

namespace rondo::collective::kernels {

std::span<const CodecKernels* const> runnable_kernels() {
#if defined(RONDO_X86_KERNELS)
  static constexpr std::array<const CodecKernels*, 3> builds = {&avx512_kernels, &avx2_kernels,
                                                                &baseline_kernels};
  static_assert(static_cast<int>(InstructionSet::avx512) == 2);
  return std::span(builds).subspan(2 - static_cast<std::size_t>(instruction_set()));
#else
  static constexpr std::array<const CodecKernels*, 1> builds = {&baseline_kernels};
  return builds;
#endif
}

const CodecKernels& codec_kernels() { return *runnable_kernels().front(); }

}  // namespace rondo::collective::kernels
