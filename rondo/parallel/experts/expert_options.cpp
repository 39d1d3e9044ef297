#include "rondo/parallel/experts/expert_options.h"

namespace rondo {

std::vector<Declaration> ExpertFolder::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Gradients in buckets");
  table.add("bucket-size", &Options::bucket_bytes,
            "Gradients are reduced in buckets of this size; default 25MiB, between hosts --block-size");
  table.add("codec", &Options::codec,
            "How gradients travel: none, float16, bfloat16, int8, top_k[:FRACTION], "
            "power_sgd[:rank=R,start=S] or a hook of docs/codecs.md");
  table.add("check-parameters-every", &Options::check_parameters_every,
            "Steps between checks that ranks agree; 0 is never", zero_or_more());
  return {
      {.name = "expert",
       .summary = "experts spread over ranks, tokens travel to them; all else is on every rank, as in ddp",
       .options = table}};
}

}  // namespace rondo
