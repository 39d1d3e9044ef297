#pragma once

#include <cstddef>
#include <span>

#include "rondo/collective/dtype.h"

namespace rondo {

// An elementwise reduction over the ranks' buffers.
//
// For every element the sources are combined in the order given (rank 0, 1, 2, ...), independent of the
// length, the alignment and the processor: results are bit-reproducible, and the same on every rank. float16
// and bfloat16 accumulate in float32 and are rounded once, to nearest even.
struct ReductionTask {
  DType type = DType::float32;
  Reduction reduction = Reduction::sum;
  std::span<const std::byte* const> sources;  // at least one
  std::span<std::byte* const> destinations;   // each gets the result; one may be a source
  std::size_t elements = 0;
  // Empty, or one weight per source, for a weighted average: sum(weight[i] * source[i]) / sum(weight). A
  // source of weight zero is skipped, so its contents do not matter. Floating types with Reduction::average
  // only; reduce() throws UsageError for others.
  std::span<const double> weights;
};

// Runs the task on this thread, with the widest instructions of this processor. Throws UsageError if the
// reduction is not defined on the type. Buffers may overlap only as described above.
void reduce(const ReductionTask& task);

// Returns the kernels that reduce() uses: "avx512", "avx2" or "baseline".
const char* reduction_kernels_name();

}  // namespace rondo
