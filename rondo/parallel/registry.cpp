#include "rondo/parallel/registry.h"

#include "rondo/parallel/strategy_factories.h"

namespace rondo {

StrategyRegistry all_strategies() {
  StrategyRegistry registry = local_strategies();
  for_each_strategy_factory([&](auto factory) {
    using Factory = decltype(factory);
    using Options = typename Factory::Options;
    for (const Declaration& declared : Factory::declarations()) {
      registry.add<Options>(declared, [name = declared.name](const Context& context, const Options& options) {
        return Factory::make(name, context, options);
      });
    }
  });
  return registry;
}

}  // namespace rondo
