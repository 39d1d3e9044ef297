#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

// Checks of a collective's arguments before it starts, in the words of c10d's other backends, so that
// programs find the errors that they know from them. Where every supported libtorch has a check, it is c10d's
// own. All throw UsageError.
namespace rondo {

using TensorList = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

void check_broadcast(const TensorList& tensors, const c10d::BroadcastOptions& options, int size);
void check_all_reduce(const TensorList& tensors, const c10d::ReduceOp& op);
void check_all_reduce_coalesced(const TensorList& tensors);
void check_reduce(const TensorList& tensors, const c10d::ReduceOptions& options, int size);
void check_all_gather(const TensorLists& outputs, const TensorList& inputs, int size);
// `outputs` has a list a rank, with a tensor like each input.
void check_all_gather_coalesced(const TensorLists& outputs, const TensorList& inputs, int size);
void check_gather(const TensorLists& outputs, const TensorList& inputs, const c10d::GatherOptions& options,
                  int rank, int size);
void check_scatter(const TensorList& outputs, const TensorLists& inputs, const c10d::ScatterOptions& options,
                   int rank, int size);

}  // namespace rondo
