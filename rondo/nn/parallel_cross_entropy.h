#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/backend/group.h"

namespace rondo {

// The sum of the cross entropies of `target`, int64 [...], and of logits of which every rank of `group` has
// an equal part of the classes, in rank order: [..., classes / ranks]. Ignored targets (kIgnoredTarget) count
// nothing. What travels is three numbers a row: the maximum, the sum of exponentials, the target's logit; no
// rank has all logits of a row (Shoeybi et al., Megatron-LM, 1909.08053). A scalar, the same on all ranks, in
// float32 or wider; differentiable once. Collective, forward only. Throws UsageError for shapes that do not
// fit and for a target that is no class.
at::Tensor cross_entropy_of_parts(const at::Tensor& logits, const at::Tensor& target, const Group& group);

}  // namespace rondo
