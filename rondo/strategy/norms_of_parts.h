#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// Parameters of which a rank has a part, each by its tensor.
using PartSet = std::set<const c10::TensorImpl*>;

// Adds up over `group` the rows of `squares` whose parameters are in `parts`; every rank has the others as a
// whole, and their rows stay. Row i of `squares`, float64 [parameters, ...] on the CPU, belongs to parameter
// i of `parameters`, which all ranks name in one order. Collective.
void add_norms_of_parts(const std::vector<at::Tensor>& parameters, const PartSet& parts, const Group& group,
                        at::Tensor& squares);

}  // namespace rondo
