#include "rondo/parallel/registry.h"

#include "rondo/parallel/ddp/ddp_strategy.h"
#include "rondo/parallel/sharded/sharded_strategy.h"

namespace rondo {

StrategyRegistry all_strategies() {
  StrategyRegistry registry = local_strategies();
  registry.add("ddp", "every rank holds the whole model; gradients are averaged",
               [](const Context& context, const StrategyOptions& options) -> std::unique_ptr<Strategy> {
                 refuse_options_of_units("ddp", options);
                 return std::make_unique<DdpStrategy>(context, options);
               });
  registry.add_alias("multi_worker_mirrored", "ddp");
  add_sharded_strategies(registry);
  return registry;
}

}  // namespace rondo
