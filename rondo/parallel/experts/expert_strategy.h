#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/experts/expert_options.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/strategy/model_parts.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// The layers of experts' parameters, by the names of these in the model.
using ExpertLayers = std::map<std::string, MixtureOfExpertsImpl*>;

// Of a model whose experts are spread over ranks: dense parameters are on every rank in full, of those of
// experts each rank has the rows of its own. Between unshard() and shard_again() the experts' parameters hold
// all rows.
class ExpertParts final : public ModelParts {
 public:
  // `module` and `layers`, which are spread already, outlive the object. `replicas` are the ranks with the
  // same experts as this one. `share_buffers` gives all ranks the buffers of one, if they differ.
  ExpertParts(torch::nn::Module& module, const ExpertLayers& layers, Group world, const Group& replicas,
              std::function<void()> share_buffers);

  void flush_for(ForwardPasses passes) override;
  void take_values(NewValues values) override;
  PartsTraits traits() const override { return {.optimizes_shards = true}; }
  NormSum norm_sum() override;
  std::vector<Shard> shards() override;
  std::vector<ModelTensor> buffers() override;

  // Every parameter holds this rank's rows again. Communicates nothing.
  void shard_again();
  // Of experts, and all others.
  std::vector<ModelTensor> expert_parameters() const;
  std::vector<ModelTensor> dense_parameters() const;

 private:
  struct Parameter {
    ModelTensor entry;
    MixtureOfExpertsImpl* layer;  // null: dense
    at::Tensor rows;  // of this rank, where the layer has it; the parameter's memory but for unshard()
  };

  torch::nn::Module& module_;
  const int replica_;
  const std::function<void()> share_buffers_;
  std::vector<Parameter> parameters_;  // in the model's order
  bool gathered_ = false;
};

// A model whose experts are spread over ranks. The gradients of dense parameters are averaged over all ranks;
// those of an expert, which its layer has averaged over the ranks that sent it tokens, over the ranks that
// have a copy of it.
class ExpertModel final : public PreparedModel {
 public:
  // Collective. `module` has the parameters of a model whose `layers` are spread over `groups`, or empty ones
  // in place of what another stage of a pipeline has; dense ones get the values of rank 0. `replicas`: the
  // ranks with the same experts as this one. `world` holds the ranks of groups.all, for gradients.
  ExpertModel(std::shared_ptr<torch::nn::Module> module, const ExpertLayers& layers, const Group& world,
              const ExpertGroups& groups, const Group& replicas, const ExpertOptions& options);

  torch::nn::Module& module() override { return *module_; }
  void announce(const StepTotals& mine) override;
  StepTotals totals() override;
  ModelParts& parts() override { return *parts_; }
  CommunicationTimes communication_times() const override;
  std::vector<TraceSpan> communication_spans() const override;

 private:
  void start_pass(const LocalBatch& batch) override;
  void finish_pass() override { no_sync_.clear(); }
  double clip_combined(double max_norm) override;

  std::shared_ptr<torch::nn::Module> module_;
  ExpertGroups groups_;
  std::unique_ptr<ExpertParts> parts_;
  std::unique_ptr<DistributedDataParallel> dense_;
  std::unique_ptr<DistributedDataParallel> experts_;  // null: experts without a copy, or frozen ones
  std::vector<NoSync> no_sync_;                       // within an accumulation window
  RankStep mine_;                                     // of the step that is under way
  std::unique_ptr<StepAnnouncement> arriving_;        // of the samples whose tokens come here; as experts_
  bool synchronised_ = false;
};

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
