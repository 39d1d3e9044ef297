#if defined(RONDO_X86_KERNELS)
#include "rondo/collective/codec/kernels_body.h"

namespace rondo::collective::kernels {

const CodecKernels avx2_kernels = make_kernels("avx2");

}  // namespace rondo::collective::kernels
#endif
