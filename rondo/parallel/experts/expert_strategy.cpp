#include "rondo/parallel/experts/expert_strategy.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/gradient_norm.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/ddp_state.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/strategy/clip_shards.h"
#include "rondo/strategy/one_device.h"

namespace rondo {

ExpertParts::ExpertParts(torch::nn::Module& module, const ExpertLayers& layers, Group world,
                         const Group& replicas, std::function<void()> share_buffers)
    : ModelParts(std::move(world)),
      module_(module),
      replica_(replicas.rank()),
      share_buffers_(std::move(share_buffers)) {
  for (ModelTensor& parameter : tensors_of(module).parameters) {
    const auto found = layers.find(parameter.name);
    MixtureOfExpertsImpl* const layer = found != layers.end() ? found->second : nullptr;
    at::Tensor rows = layer != nullptr ? parameter.tensor.detach() : at::Tensor();
    parameters_.push_back({std::move(parameter), layer, std::move(rows)});
  }
}

void ExpertParts::flush_for(ForwardPasses passes) {
  if (passes == ForwardPasses::together) shard_again();
  share_buffers_();
  if (passes == ForwardPasses::together) return;
  if (gathered_) return;
  for (Parameter& parameter : parameters_) {
    if (parameter.layer == nullptr) continue;
    parameter.layer->set_gathered(true);
    if (parameter.rows.numel() == 0) continue;  // the layer belongs to another pipeline stage
    parameter.entry.tensor.set_data(
        at::cat(all_gather(parameter.rows.contiguous(), parameter.layer->groups().experts)));
  }
  gathered_ = true;
}

void ExpertParts::take_values(NewValues) {
  if (!gathered_) return;
  const at::NoGradGuard no_gradient;
  for (Parameter& parameter : parameters_) {
    if (parameter.layer == nullptr || parameter.rows.numel() == 0) continue;
    parameter.rows.copy_(
        parameter.entry.tensor.narrow(0, parameter.layer->first_expert(), parameter.layer->local_experts()));
  }
}

void ExpertParts::shard_again() {
  if (!gathered_) return;
  for (Parameter& parameter : parameters_) {
    if (parameter.layer == nullptr) continue;
    parameter.entry.tensor.set_data(parameter.rows);
    parameter.layer->set_gathered(false);
  }
  gathered_ = false;
}

NormSum ExpertParts::norm_sum() {
  PartSet rows;
  Group experts;
  for (const Parameter& parameter : parameters_) {
    if (parameter.layer == nullptr) continue;
    rows.insert(parameter.entry.tensor.unsafeGetTensorImpl());
    experts = parameter.layer->groups().experts;
  }
  return [rows = std::move(rows), experts](const std::vector<at::Tensor>& parameters, at::Tensor& squares) {
    add_norms_of_parts(parameters, rows, experts, squares);
  };
}

std::vector<Shard> ExpertParts::shards() {
  std::vector<Shard> shards;
  for (const Parameter& parameter : parameters_) {
    const auto& [name, tensor] = parameter.entry;
    if (parameter.layer == nullptr) {
      shards.push_back(full_shard(name, tensor, group().rank()));
      continue;
    }
    Shard shard = full_shard(name, tensor, replica_);
    shard.global_sizes.front() = parameter.layer->config().experts;
    shard.offsets.front() = parameter.layer->first_expert();
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::vector<ModelTensor> ExpertParts::buffers() { return tensors_of(module_).buffers; }

std::vector<ModelTensor> ExpertParts::expert_parameters() const {
  std::vector<ModelTensor> result;
  for (const Parameter& parameter : parameters_) {
    if (parameter.layer != nullptr) result.push_back(parameter.entry);
  }
  return result;
}

std::vector<ModelTensor> ExpertParts::dense_parameters() const {
  std::vector<ModelTensor> result;
  for (const Parameter& parameter : parameters_) {
    if (parameter.layer == nullptr) result.push_back(parameter.entry);
  }
  return result;
}

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
    const at::NoGradGuard no_gradients;  // these forward passes do not belong to a step
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
      // The weight of an expert's gradients is the number of samples on all ranks that sent it tokens. The
      // number is known before the first gradient, because the tokens are exchanged in the same group.
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

ExpertStrategy::ExpertStrategy(Context context, const ExpertOptions& options)
    : ProcessStrategy("expert", std::move(context)), options_(options) {}

void ExpertStrategy::spread(torch::nn::Module& model) {
  const Context& all = context();
  if (all.world_size() == 1) return;
  const std::vector<MixtureOfExpertsImpl*> layers = expert_layers(model);
  if (layers.empty())
    throw UsageError(
        "strategy expert: the model has no experts to spread over ranks; for a gpt set "
        "experts (--experts N)");
  std::vector<at::Tensor> whole;
  std::map<const c10::TensorImpl*, MixtureOfExpertsImpl*> layer_of;
  for (MixtureOfExpertsImpl* layer : layers) {
    for (const at::Tensor& parameter : layer->experts().parameters()) {
      whole.push_back(parameter);
      layer_of[parameter.unsafeGetTensorImpl()] = layer;
    }
  }
  for (const ModelTensor& parameter : tensors_of(model).parameters) {
    const auto found = layer_of.find(parameter.tensor.unsafeGetTensorImpl());
    if (found != layer_of.end()) layers_[parameter.name] = found->second;
  }
  broadcast_coalesced(whole, all.world(), /*root=*/0);
  // Uses separate groups, because tokens are exchanged while gradients are.
  groups_.all = all.new_group(all.world().ranks());
  const bool divided = size_along(all.mesh(), "expert") > 1;
  groups_.experts = all.new_group_along({divided ? "expert" : "data"});
  copies_ = all.new_group_along({divided ? "data" : "expert"});
  for (MixtureOfExpertsImpl* layer : layers) layer->spread(groups_);
}

std::unique_ptr<PreparedModel> ExpertStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  if (context().world_size() == 1) return local_model(std::move(module));
  if (layers_.empty()) spread(*module);
  return std::make_unique<ExpertModel>(std::move(module), std::exchange(layers_, {}), context().world(),
                                       groups_, copies_, options_);
}

std::unique_ptr<Strategy> ExpertStrategyFactory::make(const std::string&, const Context& context,
                                                      const ExpertOptions& options) {
  // A single process needs no hook, but an invalid name is still an error.
  if (options.codec != "none") make_comm_hook(options.codec, context.world());
  return std::make_unique<ExpertStrategy>(context, options);
}

}  // namespace rondo
