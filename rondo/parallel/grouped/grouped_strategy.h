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

// One rank's replica in a group that is one worker of parameter servers. In a step, the group's first rank
// pulls the variables and broadcasts them to the group. Gradients are reduced within the group, and the first
// rank pushes them.
class GroupedModel final : public PreparedModel {
 public:
  // `replica` reduces gradients of `module` within `group`. `served` connects that module to the servers; it
  // is set on the group's first rank, and null on the others. Collective within the group.
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
  // Broadcasts the parameters of the group's first rank.
  void share();

  std::unique_ptr<PreparedModel> replica_;
  std::unique_ptr<ServedModel> served_;
  Group group_;
  std::unique_ptr<ModelParts> parts_;
  std::vector<at::Tensor> parameters_;
  bool in_window_ = false;  // whether more passes of the step follow
  bool announced_ = false;  // whether totals() belong to this step
  double samples_ = 0;      // number of samples on this rank
};

// Strategy "grouped", on one rank of a group: ddp within the group, which is one worker of parameter servers.
// The first rank of each group communicates with the servers. Group 0 is the chief: its ranks validate
// together, and its first rank writes checkpoints.
class GroupedStrategy final : public ServerStrategy {
 public:
  // `context` has the ranks of the group (init_options_of_group()), and `connect` describes the group as a
  // worker. Throws UsageError for another context, naming both.
  GroupedStrategy(const Context& context, const server::ClusterOptions& connect, control::JobSecret secret,
                  const GroupPlace& place, const DdpStrategyOptions& within);

  using ServerStrategy::prepare;
  // Connects the group's first rank to the servers. Collective within the group.
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  ReplicaPlacement placement() const override;

 private:
  GroupPlace place_;
  DdpStrategy within_;
};

}  // namespace rondo
