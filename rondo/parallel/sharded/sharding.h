#pragma once

#include <string_view>

#include "rondo/cost/strategy.h"

namespace rondo {

// How a unit's parameters, gradients and optimizer state are kept on the ranks: what the planner chooses
// among.
using Sharding = cost::Strategy;
using cost::shards_optimizer;
using cost::shards_parameters;

// Reads a name; "fsdp" is zero3. Throws UsageError listing what is allowed; `where` begins the message.
Sharding parse_sharding(std::string_view name, std::string_view where);

}  // namespace rondo
