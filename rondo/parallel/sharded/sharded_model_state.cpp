#include <torch/types.h>

#include <algorithm>
#include <map>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/codec_state.h"
#include "rondo/base/text.h"
#include "rondo/parallel/sharded/sharded_model.h"

// ShardedModel's access to parameters outside of steps: shards by name, full parameters.
namespace rondo {

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

CommState ShardedModel::gradient_memory() const {
  CommState memory;
  for (const auto& unit : units_) memory.merge(unit->gradient_memory());
  return memory;
}

CommunicationState ShardedModel::communication_state() const {
  return save_feedback(gradient_memory(), environment_.codec);
}

std::string ShardedModel::restore_communication(const std::vector<CommunicationState>& of_ranks) {
  const CommState memory = gradient_memory();
  if (memory.empty()) return {};
  return codec_restart_warning(restore_own_state(
      of_ranks, context_.rank(), context_.world_size(),
      [&](const CommState& own) { return restore_feedback(memory, environment_.codec, own); }));
}

}  // namespace rondo
