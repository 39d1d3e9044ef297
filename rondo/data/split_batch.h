#pragma once

#include <span>

#include "rondo/data/dataset.h"

namespace rondo {

// Part `part` of `parts` of a batch, by samples in their order: sizes differ by one at most, the first parts
// are the larger ones, and parts beyond the number of samples have none. Tensors are views of the batch's.
// Throws UsageError for a tensor whose first dimension is not the samples.
Batch part_of_batch(const Batch& batch, int part, int parts);

// The samples of all parts in their order, of one part or more.
Batch joined_batch(std::span<const Batch> parts);

}  // namespace rondo
