#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/experts/expert_options.h"
#include "rondo/parallel/experts/expert_parts.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

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

}  // namespace rondo
