#include "rondo/parallel/experts/expert_options.h"

#include "rondo/parallel/ddp/ddp_strategy_options.h"

namespace rondo {

std::vector<Declaration> ExpertStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.include(bucket_table());
  table.begin_group("Gradients in buckets");
  table.add("codec", &Options::codec, kCodecHelp, {.type = kCodecOption});
  return {{.name = "expert",
           .summary = "experts are divided among ranks; everything else is replicated, as in ddp",
           .options = table}};
}

}  // namespace rondo
