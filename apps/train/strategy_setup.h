#pragma once

#include "apps/train/flags.h"
#include "rondo/backend/group.h"
#include "rondo/strategy/registry.h"

namespace rondo {

// What the flags tell strategies. Throws UsageError naming the flag that cannot be read.
StrategyOptions strategy_options(const TrainFlags& flags, const Group& world);

}  // namespace rondo
