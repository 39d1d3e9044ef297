#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "rondo/backend/group.h"

namespace rondo {

// Returns this rank's state that the engine of `group` keeps between operations and that a run needs to
// resume bit for bit: the error feedback of `hierarchical(..., codec=int8)`. By name; empty if the engine
// keeps none. Call it on all ranks of the group, with no operation in flight.
std::map<std::string, at::Tensor> engine_memory(const Group& group);

// Restores the result of engine_memory() on this rank. Returns an empty string if all of it is used;
// otherwise the reason ("is of codec int8 ..., and this engine has ..."), and the engine starts without
// state.
std::string restore_engine_memory(const Group& group, const std::map<std::string, at::Tensor>& memory);

}  // namespace rondo
