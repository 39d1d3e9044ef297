#include "rondo/parallel/tpu/tpu_options.h"

#include "rondo/parallel/ddp/ddp_strategy_options.h"

namespace rondo {

std::vector<Declaration> TpuStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Ranks as a torus");
  table.add("torus", &Options::torus,
            "Rows and columns of ranks, such as 2x4; auto: TPU_TOPOLOGY, else near-square");
  table.without_flags({"torus"});
  table.include(bucket_table());
  table.begin_group("Gradients in buckets");
  table.add("codec", &Options::codec, kCodecHelp, {.type = kCodecOption});
  return {{.name = "tpu",
           .summary = "every rank holds the whole model; gradients are all-reduced over a 2-D torus of ranks",
           .options = table}};
}

}  // namespace rondo
