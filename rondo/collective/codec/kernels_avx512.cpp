#if defined(RONDO_X86_KERNELS)
#include "rondo/collective/codec/kernels_body.h"

namespace rondo::collective::kernels {

const CodecKernels avx512_kernels = make_kernels("avx512");

}  // namespace rondo::collective::kernels
#endif
