#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/parallel/server/served_model.h"
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

}  // namespace rondo
