#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "rondo/backend/collectives.h"

namespace rondo {

// Strategy::reduce() and gather() of what each rank of `group` has, one tensor a replica of it, as many on
// every rank; an empty handle is this process alone. Collective; they leave `local` alone. Throw UsageError
// for an axis that a value lacks, and for an operation that has no meaning there.
at::Tensor reduce_values(ReduceOp op, const std::vector<at::Tensor>& local, std::optional<std::int64_t> axis,
                         const Group& group);
// Likewise; in the order of ranks, and of the replicas of each.
at::Tensor gather_values(const std::vector<at::Tensor>& local, std::int64_t axis, const Group& group);

}  // namespace rondo
