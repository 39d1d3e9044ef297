#include "rondo/collective/instruction_set.h"

#if defined(RONDO_X86_KERNELS)
#include <cpuid.h>
#endif

namespace rondo {
namespace {

#if defined(RONDO_X86_KERNELS)
// Tests for half-precision conversions, which clang's __builtin_cpu_supports lacks.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

InstructionSet detect() {
#if defined(RONDO_X86_KERNELS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return InstructionSet::avx512;
  }
  if (__builtin_cpu_supports("avx2") && has_f16c()) return InstructionSet::avx2;
#endif
  return InstructionSet::baseline;
}

}  // namespace

InstructionSet instruction_set() {
  static const InstructionSet detected = detect();
  return detected;
}

}  // namespace rondo
