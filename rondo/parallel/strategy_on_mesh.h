#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rondo/strategy/registry.h"

namespace rondo {

// Returns the strategy `name` along the dimension "data" of context.mesh(), below the strategies that divide
// a replica. These are one for each other dimension, under that dimension's name in the registry. `name` may
// be one of them, and replicas are then trained by ddp. `values` returns the option values of a strategy by
// its name. Collective. Throws UsageError like StrategyRegistry::make(), and for a dimension that no strategy
// supports.
std::unique_ptr<Strategy> strategy_on_mesh(const StrategyRegistry& strategies, const std::string& name,
                                           const Context& context,
                                           const std::function<OptionValues(const std::string&)>& values);

}  // namespace rondo
