#include "rondo/parallel/server/server_options.h"

#include "rondo/parallel/schedule/communication_options.h"

namespace rondo {

OptionsOf<ServerStrategyOptions> server_table() {
  using Options = ServerStrategyOptions;
  OptionsOf<Options> table;
  table.begin_group("Parameter servers");
  table.add("ps", &Options::ps, "Servers to start on this host; default 1", above_zero());
  table.add("ps-mode", &Options::server_mode,
            "async: apply each gradient on arrival; sync: apply their mean; ssp: bounded staleness",
            one_of({"async", "ssp", "sync"}));
  table
      .add("ps-staleness", &Options::staleness, "Maximum number of steps that the fastest worker is ahead",
           zero_or_more())
      .needs = OptionNeed{"ps-mode", {"ssp"}};
  table
      .add("ps-backup-workers", &Options::backup_workers,
           "Number of slowest workers that a step does not wait for", zero_or_more())
      .needs = OptionNeed{"ps-mode", {"sync"}};
  table.add("ps-partitioner", &Options::partitioner,
            "Division of variables along their first dimension: none, fixed:SHARDS, min-size:BYTES[:SHARDS], "
            "max-size:BYTES[:SHARDS]");
  table.add("ps-placement", &Options::placement, "Placement of variables on servers",
            one_of({"by_size", "round_robin"}));
  table.without_flags({"ps-staleness", "ps-backup-workers", "ps-partitioner", "ps-placement"});
  return table;
}

std::vector<Declaration> ServerStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Parameter servers");
  table.add("workers", &Options::workers, "Workers to start on this host; the first is the chief; default 1",
            above_zero());
  table.include(server_table());
  table.begin_group("Parameter servers");
  table.add("codec", &Options::push_codec, kCodecHelp, {.type = kCodecOption});
  return {{.name = "parameter_server",
           .summary = "servers hold the model and the optimizer; workers pull weights and push gradients",
           .options = table,
           .worker = ServedWorker::process}};
}

}  // namespace rondo
