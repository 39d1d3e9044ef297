#include "rondo/collective/reduction.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/reduction_dispatch.h"

namespace rondo {
namespace {

struct Kernels {
  const char* name;
  void (*run)(const ReductionTask&);
};

Kernels choose_kernels() {
#if defined(RONDO_X86_KERNELS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return {"avx512", kernels::reduce_avx512};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return {"avx2", kernels::reduce_avx2};
#endif
  return {"baseline", kernels::reduce_baseline};
}

const Kernels& chosen() {
  static const Kernels kernels = choose_kernels();
  return kernels;
}

}  // namespace

void reduce(const ReductionTask& task) {
  if (!supports(task.type, task.reduction)) {
    throw UsageError(str("reduction ", name(task.reduction), " is not defined on ", name(task.type)));
  }
  chosen().run(task);
}

const char* reduction_kernels_name() { return chosen().name; }

}  // namespace rondo
