#pragma once

#include "rondo/strategy/registry.h"

namespace rondo {

// Every strategy that rondo has: one_device and those of the folders in strategy_folders.h.
StrategyRegistry all_strategies();

}  // namespace rondo
