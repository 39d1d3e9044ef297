#include "rondo/parallel/pipeline/pipeline_options.h"

namespace rondo {

std::vector<Declaration> PipelineStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Pipeline");
  table.add("pipeline-schedule", &Options::schedule, "Order in which stages compute micro-batches",
            one_of({"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"}));
  table.add("micro-batches", &Options::micro_batches, "Micro-batches per batch of a replica", above_zero());
  table.add("pipeline-chunks", &Options::chunks, "Stages per rank", above_zero()).needs =
      OptionNeed{"pipeline-schedule", {"interleaved"}};
  table.add("stage-cuts", &Options::stage_cuts,
            "First layers of all stages but the first; default: balanced by measured times");
  table.without_flags({"pipeline-chunks", "stage-cuts"});
  return {{.name = "pipeline",
           .summary = "the model is cut into stages, one or more a rank; micro-batches go through them",
           .options = table}};
}

}  // namespace rondo
