#include "rondo/parallel/ddp/ddp_strategy_options.h"

namespace rondo {

OptionsOf<DdpOptions> bucket_table() {
  OptionsOf<DdpOptions> table;
  table.begin_group("Gradients in buckets");
  table.add("bucket-size", &DdpOptions::bucket_bytes,
            "Size of the gradient buckets; default 25MiB, between hosts segment-size");
  table.add("check-parameters-every", &DdpOptions::check_parameters_every,
            "Steps between checks that all ranks have equal parameters; 0: never", zero_or_more());
  table.begin_group("Parameters without a gradient");
  table.add("find-unused-parameters", &DdpOptions::find_unused_parameters, kFindUnusedHelp);
  table.add(
      "static-graph", &DdpOptions::static_graph,
      "As find-unused-parameters, if the unused parameters never change; costs nothing after the first step");
  table.without_flags({"check-parameters-every", "static-graph"});
  return table;
}

OptionsOf<DdpStrategyOptions> ddp_strategy_table() {
  using Options = DdpStrategyOptions;
  OptionsOf<Options> table;
  table.include(bucket_table());
  table.begin_group("Gradients in buckets");
  table.add("codec", &Options::codec, kCodecHelp, {.type = kCodecOption});
  table.include(communication_options());
  return table;
}

std::vector<Declaration> DdpStrategyFactory::declarations() {
  return {{.name = "ddp",
           .summary = "every rank holds the whole model; gradients are averaged",
           .options = ddp_strategy_table()}};
}

}  // namespace rondo
