#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "rondo/backend/group.h"

namespace rondo {

// What the engine behind a group remembers from operation to operation and a run needs to go on bit for bit:
// the error feedback of `hierarchical(..., codec=int8)`. Of one rank, by name; empty where an engine
// remembers nothing. While no operation is under way; on all ranks of the group.
std::map<std::string, at::Tensor> engine_memory(const Group& group);

// Goes on from what engine_memory() gave on this rank. Empty when all of it is used; otherwise why it is not
// ("is of codec int8 ..., and this engine has ..."), and the engine begins anew.
std::string restore_engine_memory(const Group& group, const std::map<std::string, at::Tensor>& memory);

}  // namespace rondo
