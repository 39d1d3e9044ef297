#pragma once

#include "rondo/strategy/registry.h"

namespace rondo {

// Every strategy that rondo has: one_device, ddp (alias multi_worker_mirrored).
StrategyRegistry all_strategies();

}  // namespace rondo
