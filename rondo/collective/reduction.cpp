#include "rondo/collective/reduction.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/instruction_set.h"
#include "rondo/collective/reduction_dispatch.h"

namespace rondo {
namespace {

struct Kernels {
  const char* name;
  void (*run)(const ReductionTask&);
};

Kernels choose_kernels() {
#if defined(RONDO_X86_KERNELS)
  if (instruction_set() == InstructionSet::avx512) return {"avx512", kernels::reduce_avx512};
  if (instruction_set() == InstructionSet::avx2) return {"avx2", kernels::reduce_avx2};
#endif
  return {"baseline", kernels::reduce_baseline};
}

const Kernels& chosen() {
  static const Kernels kernels = choose_kernels();
  return kernels;
}

}  // namespace

void reduce(const ReductionTask& task) {
  const bool averages = task.weights.empty() && averages_integers(task.type, task.reduction);
  if (!averages && !supports(task.type, task.reduction)) {
    throw UsageError(str("reduction ", name(task.reduction), " is not defined on ", name(task.type)));
  }
  chosen().run(task);
}

const char* reduction_kernels_name() { return chosen().name; }

}  // namespace rondo
