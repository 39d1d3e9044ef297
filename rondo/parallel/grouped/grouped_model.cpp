#include "rondo/parallel/grouped/grouped_model.h"

#include <torch/types.h>

#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/coalesced_broadcast.h"

namespace rondo {

// The model is whole on every rank of the group, once its first rank has pulled it.
class GroupedModel::Parts final : public UndividedModel {
 public:
  explicit Parts(GroupedModel& model) : UndividedModel(model.module(), model.group_), model_(model) {}
  void flush_for(ForwardPasses passes) override {
    model_.replica_->parts().flush_for(passes);
    if (model_.served_) model_.served_->parts().flush_for(passes);
    model_.share();
  }
  void take_values(NewValues values) override {
    if (model_.served_) model_.served_->parts().take_values(values);
  }

 private:
  GroupedModel& model_;
};

GroupedModel::GroupedModel(std::unique_ptr<PreparedModel> replica, std::unique_ptr<ServedModel> served,
                           const Group& group)
    : replica_(std::move(replica)), served_(std::move(served)), group_(group) {
  for (const auto& [name, parameter] : tensors_of(module()).parameters) parameters_.push_back(parameter);
  parts_ = std::make_unique<Parts>(*this);
}

void GroupedModel::share() {
  const at::NoGradGuard no_grad;
  if (group_.size() > 1) broadcast_coalesced(parameters_, group_, /*root=*/0);
}

void GroupedModel::start_pass(const LocalBatch& given) {
  LocalBatch batch = given;
  batch.discard_gradients = false;  // this object freezes the parameters
  // What is pushed is what the group has combined, not what this rank's backward pass gives.
  LocalBatch told = batch;
  told.optimizer = nullptr;
  if (served_) served_->begin_step(told);
  if (!in_window_) share();
  in_window_ = !batch.synchronise;
  announced_ = false;
  samples_ = static_cast<double>(batch.samples);
  // What the group has combined is pushed in step(), which is not the replica's.
  LocalBatch combined = batch;
  combined.gradients_are_read = true;
  replica_->begin_step(combined);
}

void GroupedModel::announce(const StepTotals& mine) {
  announced_ = true;
  replica_->announce(mine);
}

void GroupedModel::apply_step(torch::optim::Optimizer& optimizer) {
  // A loop of one's own that announces nothing has ranks of equally many samples.
  const double samples =
      announced_ ? static_cast<double>(replica_->totals().predictions) : samples_ * group_.size();
  if (!served_) return;
  served_->set_weight(samples);
  served_->step(optimizer);
}

CommunicationTimes GroupedModel::communication_times() const {
  CommunicationTimes times = replica_->communication_times();
  if (!served_) return times;
  const CommunicationTimes between = served_->communication_times();
  return {times.busy + between.busy, times.exposed + between.exposed};
}

}  // namespace rondo
