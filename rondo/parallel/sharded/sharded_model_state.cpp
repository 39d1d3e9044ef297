#include <torch/types.h>

#include <algorithm>
#include <map>

#include "rondo/backend/collectives.h"
#include "rondo/base/text.h"
#include "rondo/parallel/sharded/sharded_model.h"

#include "rondo/parallel/hooks/comm_hook.h"

// ShardedModel's access to parameters outside of steps: shards by name, full parameters.
namespace rondo {
namespace {

constexpr const char* kCodec = "codec";  // key of the codec's name in a state

}  // namespace

std::vector<Shard> ShardedModel::shards() {
  std::map<std::string, Shard> by_name;
  for (const auto& unit : units_) {
    for (Shard& shard : unit->shards()) by_name.emplace(shard.name, std::move(shard));
  }
  std::vector<Shard> result;
  for (const ModelTensor& parameter : tensors_.parameters)
    result.push_back(std::move(by_name.at(parameter.name)));
  return result;
}

std::vector<Shard> ShardedModel::full_copies() {
  std::vector<Shard> copies;
  if (needs_barrier_) return copies;  // other ranks may still write to shared parameters
  for (const auto& unit : units_) {
    for (Shard& copy : unit->full_copies()) copies.push_back(std::move(copy));
  }
  return copies;
}

void ShardedModel::give_back_model() {
  for (const auto& unit : units_) unit->give_back();
}

void ShardedModel::take_values(NewValues values) {
  if (values == NewValues::model) {
    for (const auto& unit : units_) unit->reload_shards();
    full_fingerprint_ = full_fingerprint();
  } else {
    for (const auto& unit : units_) unit->publish_shards();
    optimized_fingerprint_.reset();
    full_fingerprint_.reset();
  }
  needs_barrier_ = true;
}

void ShardedModel::flush_for(ForwardPasses passes) {
  refuse_foreign_step();
  install_gradients_now();
  together_ = true;
  await_writers();
  share_buffers();
  finish_updates();
  for (const std::size_t unit : order_) {
    // Leaves no operation in flight on the group over which units are gathered. Parameters outside all units
    // have no forward pass that could gather them, so they are gathered here.
    if (units_[unit]->gathering() || units_[unit]->state() == nullptr) units_[unit]->finish_gather();
  }
  if (passes == ForwardPasses::together) return;
  whole_ = true;
  for (const std::size_t unit : order_) units_[unit]->start_gather({forward_priority(unit)});
  for (const std::size_t unit : order_) units_[unit]->finish_gather();
  full_fingerprint_ = full_fingerprint();
}

PartsTraits ShardedModel::traits() const {
  const auto any = [&](const auto& has) { return std::any_of(units_.begin(), units_.end(), has); };
  const bool masters = any([](const auto& unit) { return unit->has_masters(); });
  const bool optimizes_shards = shards_optimizer_state() || masters;
  return {.optimizes_shards = optimizes_shards,
          .fp32_master_weights = masters,
          .computes_with_optimized = !optimizes_shards,
          .shares_memory = any([](const auto& unit) { return unit->mapped(); }),
          .is_flushed = std::none_of(progress_.begin(), progress_.end(),
                                     [](const Progress& progress) { return progress.pending; }),
          .optimizes_whole_model = !optimizes_shards};
}

NormSum ShardedModel::norm_sum() {
  return [this](const std::vector<at::Tensor>& parameters, at::Tensor& squares) {
    optimizer_.add_norms(parameters, squares, environment_.shard_group);
  };
}

std::map<std::string, at::Tensor> ShardedModel::gradient_memory() const {
  std::map<std::string, at::Tensor> memory;
  for (const auto& unit : units_) memory.merge(unit->gradient_memory());
  return memory;
}

CommunicationState ShardedModel::communication_state() const {
  CommunicationState state;
  for (const auto& [name, tensor] : gradient_memory()) state[name] = tensor.clone();
  if (!state.empty()) state[kCodec] = text_to_tensor(environment_.codec);
  return state;
}

std::string ShardedModel::restore_communication(const std::vector<CommunicationState>& of_ranks) {
  std::map<std::string, at::Tensor> memory = gradient_memory();
  if (memory.empty()) return {};
  const auto restore = [&](const CommState& own) -> std::string {
    const auto codec = own.find(kCodec);
    const std::string saved = codec == own.end() ? "none" : tensor_to_text(codec->second);
    if (saved != environment_.codec)
      return str("is of codec '", saved, "', this model has '", environment_.codec, "'");
    for (const auto& [name, tensor] : memory) {
      const auto found = own.find(name);
      if (found == own.end() || found->second.sizes() != tensor.sizes())
        return "is of other units, blocks or ranks that share the model";
    }
    for (auto& [name, tensor] : memory) tensor.copy_(own.at(name));
    return {};
  };
  return codec_restart_warning(restore_own_state(of_ranks, context_.world(), restore));
}

}  // namespace rondo
