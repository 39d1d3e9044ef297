#pragma once

#include <cstddef>
#include <span>

#include "rondo/collective/dtype.h"

namespace rondo {

// One elementwise reduction over the ranks' buffers.
//
// For every element the sources are combined in the order given (rank 0, 1, 2, ...), whatever the length, the
// alignment or the processor: results are bit-reproducible, and the same on every rank. float16 and bfloat16
// accumulate in float32 and are rounded once, to nearest even.
struct ReductionTask {
  DType type = DType::float32;
  Reduction reduction = Reduction::sum;
  std::span<const std::byte* const> sources;  // at least one
  std::span<std::byte* const> destinations;   // each gets the result; one may be the same buffer as a source
  std::size_t elements = 0;
  // Empty, or one weight a source, for a weighted average: sum(weight[i] * source[i]) / sum(weight). A source
  // of weight zero is left out, so what it holds does not matter. Floating types with Reduction::average
  // only; reduce() throws UsageError for others.
  std::span<const double> weights;
};

// Runs the task on this thread, with the widest instructions this processor has. Throws Error when the
// reduction is not defined on the type. Buffers may not overlap except as said above.
void reduce(const ReductionTask& task);

// "avx512", "avx2" or "baseline": what reduce() uses here.
const char* reduction_kernels_name();

}  // namespace rondo
