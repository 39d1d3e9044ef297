#include "rondo/parallel/pipeline/pipeline_options.h"

namespace rondo {

std::vector<Declaration> PipelineStrategyFactory::declarations() {
  OptionsOf<Options> table;
  table.begin_group("Pipeline");
  table.add("pipeline-schedule", &Options::schedule, "In which order stages compute micro-batches",
            one_of({"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"}));
  table.add("micro-batches", &Options::micro_batches, "Into which each batch of a replica is cut",
            above_zero());
  table.add("pipeline-chunks", &Options::chunks, "Stages of a rank", above_zero()).needs =
      OptionNeed{"pipeline-schedule", {"interleaved"}};
  table.add("stage-cuts", &Options::stage_cuts,
            "Names of the layers with which stages begin, all but the first; default: balanced by what is "
            "measured");
  table.without_flags({"pipeline-chunks", "stage-cuts"});
  return {{.name = "pipeline",
           .summary = "the model is cut into stages, one or more a rank; micro-batches go through them",
           .options = table}};
}

}  // namespace rondo
