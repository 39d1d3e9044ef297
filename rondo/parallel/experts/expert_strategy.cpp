#include "rondo/parallel/experts/expert_strategy.h"

#include <torch/types.h>

#include <utility>

#include "rondo/base/error.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/coalesced_broadcast.h"
#include "rondo/parallel/ddp/hooks/registry.h"
#include "rondo/parallel/experts/expert_model.h"
#include "rondo/strategy/one_device.h"

namespace rondo {

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
  // Groups of their own: tokens travel while gradients do.
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

std::unique_ptr<Strategy> ExpertFolder::make(const std::string&, const Context& context,
                                             const ExpertOptions& options) {
  // One process needs no hook; a wrong name is an error there, too.
  if (options.codec != "none") make_comm_hook(options.codec, context.world());
  return std::make_unique<ExpertStrategy>(context, options);
}

}  // namespace rondo
