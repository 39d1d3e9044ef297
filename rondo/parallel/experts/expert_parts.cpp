#include "rondo/parallel/experts/expert_parts.h"

#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/strategy/norms_of_parts.h"

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
    if (parameter.rows.numel() == 0) continue;  // another stage of a pipeline has the layer
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

}  // namespace rondo
