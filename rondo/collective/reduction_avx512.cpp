#if defined(RONDO_X86_KERNELS)
#include "rondo/collective/reduction_kernels.h"

namespace rondo::kernels {

void reduce_avx512(const ReductionTask& task) { run_kernels(task); }

}  // namespace rondo::kernels
#endif
