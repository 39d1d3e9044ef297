#include "rondo/parallel/pipeline/pipeline_strategy.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/pipeline/pipeline_training.h"
#include "rondo/parallel/replicated/ddp_strategy.h"
#include "rondo/parallel/tensor/divided_model.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/strategy/one_device.h"

namespace rondo {

std::unique_ptr<Training> PipelineStrategy::prepare(const Recipe& recipe) {
  return std::make_unique<PipelineTraining>(*this, inner(), recipe, options_, division_);
}

std::unique_ptr<Strategy> make_pipeline(const Context& context, std::unique_ptr<Strategy> replicas,
                                        const PipelineOptions& options,
                                        const std::optional<TensorOptions>& division) {
  if (division) check(*division);
  pipeline::stages_per_rank(options.schedule, options.chunks);
  if (options.micro_batches < 1)
    throw UsageError(str("--micro-batches ", options.micro_batches, " must be one or more"));
  return std::make_unique<PipelineStrategy>(context, std::move(replicas), options, division);
}

std::unique_ptr<Strategy> PipelineFolder::make(const std::string&, const Context& context,
                                               const PipelineOptions& options) {
  const bool has_mesh = size_along(context.mesh(), "pipeline") > 1;
  const Context meshed = has_mesh ? context : context.mesh({{"pipeline", context.world_size()}});
  const Context data = meshed.within(meshed.group("data"));
  std::unique_ptr<Strategy> replicas;
  if (data.world_size() > 1) {
    replicas = std::make_unique<DdpStrategy>(data, DdpStrategyOptions());
  } else {
    replicas = std::make_unique<OneDevice>(data);
  }
  return make_pipeline(meshed, std::move(replicas), options);
}

}  // namespace rondo
