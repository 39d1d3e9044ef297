#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "rondo/backend/collectives.h"

namespace rondo {

// Implements Strategy::reduce() for `local`, one tensor for each of this rank's replicas; every rank of
// `group` has the same number. An empty group is this process alone. Collective; does not change `local`.
// Throws UsageError for an axis that a value lacks, and for an operation that is not defined there.
at::Tensor reduce_values(ReduceOp op, const std::vector<at::Tensor>& local, std::optional<std::int64_t> axis,
                         const Group& group);
// Implements Strategy::gather() likewise; in the order of ranks and of their replicas.
at::Tensor gather_values(const std::vector<at::Tensor>& local, std::int64_t axis, const Group& group);

}  // namespace rondo
