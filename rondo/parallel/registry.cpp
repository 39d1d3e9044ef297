#include "rondo/parallel/registry.h"

#include "rondo/parallel/strategy_folders.h"

namespace rondo {

StrategyRegistry all_strategies() {
  StrategyRegistry registry = local_strategies();
  for_each_strategy_folder([&](auto folder) {
    using Folder = decltype(folder);
    using Options = typename Folder::Options;
    for (const Declaration& declared : Folder::declarations()) {
      registry.add<Options>(declared, [name = declared.name](const Context& context, const Options& options) {
        return Folder::make(name, context, options);
      });
    }
  });
  return registry;
}

}  // namespace rondo
