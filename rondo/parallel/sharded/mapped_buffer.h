#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/backend/group.h"

namespace rondo {

// One tensor in shared memory that all ranks of a group on one host see: a model's parameters once per host
// instead of once per rank. It lies in the registered memory of rank `owner` and stays until the group
// closes, since a rank may read it after its owner is through with the model. Tracked memory of every rank
// has an equal part of it. Collective. Undefined, on every rank, where the engine cannot:
// EngineTraits::parameters_in_place.
at::Tensor map_buffer(const Group& group, int owner, std::int64_t elements, const at::TensorOptions& options);

}  // namespace rondo
