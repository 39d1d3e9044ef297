#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// Rows of [rows, width] to the ranks of a group and from them, as all_to_all_single: input_rows[i] for rank
// i, output_rows[i] from it. Differentiable: gradients go back where their rows came from. Collective, and
// its backward pass, too, which the ranks make in one order.
at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<std::int64_t>& input_rows,
                         const std::vector<std::int64_t>& output_rows, const Group& group);

// `value` itself; its gradient is multiplied by `factor` on its way back. With 0 it is zeros, whatever came.
at::Tensor scale_gradient(const at::Tensor& value, double factor);

// `value` itself; in its backward pass `loss`, a scalar, gets the gradient `factor`, as if factor * loss had
// been added to what the pass began with.
at::Tensor with_auxiliary_loss(const at::Tensor& value, const at::Tensor& loss, double factor);

}  // namespace rondo
