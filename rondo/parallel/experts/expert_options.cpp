#include "rondo/parallel/experts/expert_options.h"

#include "rondo/parallel/ddp/ddp_strategy_options.h"

namespace rondo {

std::vector<Declaration> ExpertStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.include(bucket_table());
  table.begin_group("Gradients in buckets");
  table.add("codec", &Options::codec, kCodecHelp, {.type = kCodecOption});
  return {
      {.name = "expert",
       .summary = "experts spread over ranks, tokens travel to them; all else is on every rank, as in ddp",
       .options = table}};
}

}  // namespace rondo
