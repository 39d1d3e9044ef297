#pragma once

#include "rondo/strategy/registry.h"

namespace rondo {

// Returns a registry of all strategies: one_device and those of the folders in strategy_factories.h.
StrategyRegistry all_strategies();

}  // namespace rondo
