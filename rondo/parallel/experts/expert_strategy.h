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

// The layer of each expert parameter, by the parameter's name in the model.
using ExpertLayers = std::map<std::string, MixtureOfExpertsImpl*>;

// Parts of a model with experts spread over ranks. Each rank has all dense parameters, and the rows of its
// own experts. Between unshard() and shard_again() the experts' parameters hold all rows.
class ExpertParts final : public ModelParts {
 public:
  // `module` and `layers` must be spread already and outlive the object. `replicas`: the ranks with the same
  // experts as this one. `share_buffers` copies one rank's buffers to all ranks if they differ.
  ExpertParts(torch::nn::Module& module, const ExpertLayers& layers, Group world, const Group& replicas,
              std::function<void()> share_buffers);

  void flush_for(ForwardPasses passes) override;
  void take_values(NewValues values) override;
  PartsTraits traits() const override { return {.optimizes_shards = true}; }
  NormSum norm_sum() override;
  std::vector<Shard> shards() override;
  std::vector<ModelTensor> buffers() override;

  // Restores this rank's rows in every expert parameter. Does not communicate.
  void shard_again();
  // Return the parameters of experts, and all others.
  std::vector<ModelTensor> expert_parameters() const;
  std::vector<ModelTensor> dense_parameters() const;

 private:
  struct Parameter {
    ModelTensor entry;
    MixtureOfExpertsImpl* layer;  // null: dense
    // This rank's rows for an expert parameter; they share its memory except after unshard().
    at::Tensor rows;
  };

  torch::nn::Module& module_;
  const int replica_;
  const std::function<void()> share_buffers_;
  std::vector<Parameter> parameters_;  // in the model's order
  bool gathered_ = false;
};

// A model with experts spread over ranks. Gradients of dense parameters are averaged over all ranks. An
// expert's layer averages its gradients over the ranks that sent it tokens; this class averages them over the
// expert's replicas.
class ExpertModel final : public PreparedModel {
 public:
  // `module` has the parameters of a model whose `layers` are spread over `groups`, with empty ones for
  // layers of other pipeline stages. Dense parameters get the values of rank 0. `replicas`: the ranks with
  // the same experts as this one. `world`: the ranks of groups.all, for gradients. Collective.
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
  std::unique_ptr<DistributedDataParallel> experts_;  // null if experts have no replicas or are frozen
  std::vector<NoSync> no_sync_;                       // set within an accumulation window
  RankStep mine_;                                     // announcement of the current step
  // Counts the samples whose tokens arrive here; null like experts_.
  std::unique_ptr<StepAnnouncement> arriving_;
  bool synchronised_ = false;
};

// Strategy "expert": expert parallelism among data-parallel ranks. Each rank has its own data, and the
// experts of a model's MixtureOfExperts layers are spread along the mesh's dimension "expert".
class ExpertStrategy final : public ProcessStrategy {
 public:
  // Creates the strategy. Collective.
  ExpertStrategy(Context context, const ExpertOptions& options);
  using ProcessStrategy::prepare;
  // Throws UsageError for a model without experts, and in the cases of MixtureOfExpertsImpl::spread().
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  // Runs the first half of prepare(), for a caller that later calls prepare() with a module of the parameters
  // alone. Every rank of the context gets rank 0's experts and keeps its own ones. `model` must outlive the
  // result of prepare(). Collective. Throws like prepare().
  void spread(torch::nn::Module& model);

 private:
  ExpertOptions options_;
  ExpertGroups groups_;  // set by spread()
  Group copies_;         // ranks with the same experts
  ExpertLayers layers_;  // set between spread() and prepare()
};

}  // namespace rondo
