#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rondo/base/time.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo {

// The sum of sparse COO tensors over `tensors` and ranks, put into each of them; of one shape and dtype on
// all ranks, on the CPU. Ranks' values are added in rank order, and the results are coalesced. Throws what
// Engine::wait throws, UsageError for another sparse layout, MismatchError where shapes differ. Blocking: how
// much each rank has is known only when all have said it.
void sparse_all_reduce(shared_memory::Engine& engine, const std::vector<at::Tensor>& tensors,
                       Duration timeout);

}  // namespace rondo
