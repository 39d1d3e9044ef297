#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rondo/strategy/registry.h"

namespace rondo {

// The strategy `name` along the dimension "data" of context.mesh(), under those that divide a replica: one
// for each other dimension, which has that dimension's name in the registry. `name` may be such a one
// itself; replicas are then trained by ddp. `values` gives what a strategy is told, by its name. Collective.
// Throws UsageError as StrategyRegistry::make() does, and for a dimension that no strategy serves.
std::unique_ptr<Strategy> strategy_on_mesh(const StrategyRegistry& strategies, const std::string& name,
                                           const Context& context,
                                           const std::function<OptionValues(const std::string&)>& values);

}  // namespace rondo
