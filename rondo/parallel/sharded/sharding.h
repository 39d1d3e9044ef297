#pragma once

#include "rondo/cost/strategy.h"

namespace rondo {

// How a unit's parameters, gradients and optimizer state are kept on the ranks: what the planner chooses
// among.
using Sharding = cost::Strategy;
using cost::shards_gradients;
using cost::shards_optimizer;
using cost::shards_parameters;

}  // namespace rondo
