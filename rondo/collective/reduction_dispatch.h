#pragma once

#include "rondo/collective/reduction.h"

// One function per instruction set; reduction.cpp picks among them at run time.
namespace rondo::kernels {

void reduce_baseline(const ReductionTask& task);
#if defined(RONDO_X86_KERNELS)
void reduce_avx2(const ReductionTask& task);
void reduce_avx512(const ReductionTask& task);
#endif

}  // namespace rondo::kernels
