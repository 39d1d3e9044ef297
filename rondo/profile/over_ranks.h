#pragma once

#include <torch/types.h>

#include "rondo/backend/collectives.h"

namespace rondo {

// One number of every rank, reduced over them. Collective.
inline double over_ranks(double value, const Group& group, ReduceOp how) {
  at::Tensor message = at::full({1}, value, at::kDouble);
  all_reduce(message, group, how);
  return message.item<double>();
}

}  // namespace rondo
