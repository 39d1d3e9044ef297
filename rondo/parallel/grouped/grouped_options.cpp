#include "rondo/parallel/grouped/grouped_options.h"

namespace rondo {

std::vector<Declaration> GroupedStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Groups of ranks");
  table.add("ps-groups", &Options::groups,
            "Number of groups of ranks, each one worker of the servers; divides --nproc-per-node",
            above_zero());
  table.include(server_table());
  table.include(ddp_strategy_table());
  return {{.name = "grouped",
           .summary = "groups of ranks: synchronous in a group, asynchronous between them through servers",
           .options = table,
           .worker = ServedWorker::group}};
}

}  // namespace rondo
