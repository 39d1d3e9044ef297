#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/backend/group.h"

namespace rondo {

// Returns sum(share * loss) / sum(share) over the ranks of `group`, in the dtype of `loss`, which has one
// element. A rank whose share is 0 is ignored, even if its loss is not finite; returns 0 if all shares are 0.
// Collective.
at::Tensor mean_over_ranks(const at::Tensor& loss, double share, const Group& group);

}  // namespace rondo
