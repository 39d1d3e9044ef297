#include "rondo/parallel/experts/expert_model.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/nn/gradient_norm.h"
#include "rondo/parallel/ddp/ddp_state.h"
#include "rondo/parallel/ddp/hooks/registry.h"
#include "rondo/strategy/clip_shards.h"

namespace rondo {
namespace {

bool any_trained(const std::vector<ModelTensor>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const ModelTensor& parameter) { return parameter.tensor.requires_grad(); });
}

std::vector<at::Tensor> gradients_of_all(const std::vector<ModelTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const ModelTensor& parameter : parameters) tensors.push_back(parameter.tensor);
  return gradients_of(tensors);
}

}  // namespace

ExpertModel::ExpertModel(std::shared_ptr<torch::nn::Module> module, const ExpertLayers& layers,
                         const Group& world, const ExpertGroups& groups, const Group& replicas,
                         const ExpertOptions& options)
    : module_(std::move(module)), groups_(groups) {
  parts_ = std::make_unique<ExpertParts>(*module_, layers, world, replicas, [this] {
    const at::NoGradGuard no_gradients;  // the forward passes to come are not those of a step
    dense_->before_forward();
  });
  const auto averaged = [&](ModelTensors tensors, const Group& group) {
    auto ddp = std::make_unique<DistributedDataParallel>(std::move(tensors), group, options);
    if (options.codec != "none") ddp->register_comm_hook(make_comm_hook(options.codec, group));
    return ddp;
  };
  dense_ = averaged({parts_->dense_parameters(), parts_->buffers()}, world);
  const std::vector<ModelTensor> experts = parts_->expert_parameters();
  if (replicas.size() > 1 && any_trained(experts)) {
    experts_ = averaged({experts, {}}, replicas);
    arriving_ = std::make_unique<StepAnnouncement>(groups_.experts);
  }
}

void ExpertModel::start_pass(const LocalBatch& batch) {
  no_sync_.clear();
  parts_->shard_again();
  synchronised_ = batch.synchronise;
  if (batch.synchronise) {
    mine_ = {.samples = batch.samples};
    if (StepAnnouncement* announcement = dense_->state().announcement.get()) announcement->offer(mine_);
    if (experts_) {
      // Behind the gradients of this rank's experts are the samples of all ranks that sent tokens. Those are
      // known by the time of the first gradient, since the tokens have travelled in the same group.
      arriving_->start({.totals = {.samples = batch.samples}});
      experts_->state().announcement->offer_later(
          [this] { return RankStep{.samples = arriving_->totals().samples}; });
    }
  } else {
    no_sync_.push_back(dense_->no_sync());
    if (experts_) no_sync_.push_back(experts_->no_sync());
  }
  dense_->before_forward();
}

void ExpertModel::announce(const StepTotals& mine) {
  mine_.totals = mine;
  if (StepAnnouncement* announcement = dense_->state().announcement.get()) announcement->start(mine_);
}

StepTotals ExpertModel::totals() {
  StepAnnouncement* announcement = dense_->state().announcement.get();
  return announcement != nullptr ? announcement->totals() : mine_.totals;
}

double ExpertModel::clip_combined(double max_norm) {
  const std::vector<at::Tensor> dense = gradients_of_all(parts_->dense_parameters());
  const std::vector<at::Tensor> experts = gradients_of_all(parts_->expert_parameters());
  const double norm = norm_over_ranks(experts, dense, groups_.experts);
  scale_to_norm(dense, norm, max_norm);
  scale_to_norm(experts, norm, max_norm);
  return norm;
}

CommunicationTimes ExpertModel::communication_times() const {
  if (!synchronised_) return {};
  return {communication_time(dense_->last_backward()), exposed_communication_time(dense_->last_backward())};
}

std::vector<TraceSpan> ExpertModel::communication_spans() const {
  if (!synchronised_) return {};
  std::vector<TraceSpan> spans = dense_->last_backward().buckets;
  if (experts_) {
    const std::vector<TraceSpan>& more = experts_->last_backward().buckets;
    spans.insert(spans.end(), more.begin(), more.end());
  }
  return spans;
}

}  // namespace rondo
