#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// Gives every rank of `group` the values that the tensors have on rank `root`, few messages for many small
// tensors. All ranks pass tensors of equal shapes, dtypes and devices in the same order; any dtype and
// strides. Blocking. Does not count as an in-place change for autograd: buffers may be refreshed between two
// forward passes that share one backward pass.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, const Group& group, int root);

}  // namespace rondo
