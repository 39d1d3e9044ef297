#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace rondo {

// Returns every rank's `own`, which is contiguous and of one shape on all ranks, side by side along a new
// first dimension. Collective; blocks.
using GatherRanks = std::function<at::Tensor(const at::Tensor& own)>;

// The sum of sparse COO tensors over `tensors` and ranks, put into each of them; of one shape and dtype on
// all ranks. Ranks' values are added in rank order, and the results are coalesced. Throws what `gather`
// throws, UsageError for another sparse layout, MismatchError, on all ranks, where shapes or dtypes differ.
// Blocking: how much each rank has is known only when all have said it.
void sparse_all_reduce(const std::vector<at::Tensor>& tensors, int rank, const GatherRanks& gather);

}  // namespace rondo
