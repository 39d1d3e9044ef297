#include "rondo/collective/codec/kernels.h"

#include "rondo/collective/instruction_set.h"

namespace rondo::collective::kernels {

const CodecKernels& codec_kernels() {
#if defined(RONDO_X86_KERNELS)
  if (instruction_set() == InstructionSet::avx512) return avx512_kernels;
  if (instruction_set() == InstructionSet::avx2) return avx2_kernels;
#endif
  return baseline_kernels;
}

}  // namespace rondo::collective::kernels
