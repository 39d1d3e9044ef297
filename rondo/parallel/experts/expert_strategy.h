#pragma once

#include "rondo/parallel/experts/expert_options.h"
#include "rondo/parallel/experts/expert_parts.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// Strategy "expert": expert parallelism among data-parallel ranks. Each rank has data of its own; the experts
// of a model's MixtureOfExperts layers are spread over the mesh's dimension "expert".
class ExpertStrategy final : public ProcessStrategy {
 public:
  // Collective.
  ExpertStrategy(Context context, const ExpertOptions& options);
  using ProcessStrategy::prepare;
  // Throws UsageError for a model without experts, and as MixtureOfExpertsImpl::spread() does.
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  // The first half of prepare(), for who will call it with a module of the parameters alone: every rank of
  // the context takes the experts of rank 0 and keeps its own. `model` outlives what prepare() gives.
  // Collective; throws as prepare() does.
  void spread(torch::nn::Module& model);

 private:
  ExpertOptions options_;
  ExpertGroups groups_;  // since spread()
  Group copies_;         // the ranks with the same experts
  ExpertLayers layers_;  // until prepare()
};

}  // namespace rondo
