#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/parallel/ddp/ddp_strategy.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/grouped/group_place.h"
#include "rondo/parallel/server/served_model.h"
#include "rondo/parallel/server/server_strategy.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// One rank's replica in a group that is one worker of parameter servers. A step: the group's first rank pulls
// the variables and broadcasts them to the group; gradients are combined within it; the first rank pushes
// them.
class GroupedModel final : public PreparedModel {
 public:
  // `replica` combines gradients of `module` within `group`; `served` is that module at the servers, on the
  // group's first rank, and null on the others. Collective within the group.
  GroupedModel(std::unique_ptr<PreparedModel> replica, std::unique_ptr<ServedModel> served,
               const Group& group);

  torch::nn::Module& module() override { return replica_->module(); }
  ModelParts& parts() override { return *parts_; }
  void announce(const StepTotals& mine) override;
  StepTotals totals() override { return replica_->totals(); }
  CommunicationState communication_state() const override { return replica_->communication_state(); }
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override {
    return replica_->restore_communication(of_ranks);
  }
  CommunicationTimes communication_times() const override;
  std::vector<TraceSpan> communication_spans() const override { return replica_->communication_spans(); }

 private:
  class Parts;

  void start_pass(const LocalBatch& given) override;
  void finish_pass() override { replica_->finish_backward(); }
  void apply_step(torch::optim::Optimizer& optimizer) override;
  // The group's first rank's parameters become everybody's.
  void share();

  std::unique_ptr<PreparedModel> replica_;
  std::unique_ptr<ServedModel> served_;
  Group group_;
  std::unique_ptr<ModelParts> parts_;
  std::vector<at::Tensor> parameters_;
  bool in_window_ = false;  // more passes of the step are to come
  bool announced_ = false;  // totals() are of this step
  double samples_ = 0;      // of this rank
};

// Strategy "grouped", on one rank of a group: ddp within the group, which is one worker of parameter servers.
// The first rank of each group speaks with the servers; group 0 is the chief, whose ranks validate together
// and whose first rank writes checkpoints.
class GroupedStrategy final : public ServerStrategy {
 public:
  // `context` is of the ranks of the group (init_options_of_group), `connect` of the group as a worker.
  // Throws UsageError for another context, naming both.
  GroupedStrategy(const Context& context, const server::ClusterOptions& connect, control::JobSecret secret,
                  const GroupPlace& place, const DdpStrategyOptions& within);

  using ServerStrategy::prepare;
  // Collective within the group; its first rank meets the servers.
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  ReplicaPlacement placement() const override;

 private:
  GroupPlace place_;
  DdpStrategy within_;
};

}  // namespace rondo
