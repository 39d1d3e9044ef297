#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/failure_record.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/strategy/own_parameters.h"
#include "rondo/strategy/synchronous_training.h"

// Moves a training to another world: from the ranks that hold its state to those that continue.
namespace rondo {
namespace {

void append(std::vector<Shard>& to, std::vector<Shard> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

// Returns the part of the state that stays valid after the model's tensors get new memory and after ranks
// with shared memory exit.
std::vector<Shard> kept_model(ShardedState state, ModelParts& parts) {
  const bool copies = parts.shares_memory();
  if (!copies) append(state.model, std::move(state.full_copies));
  for (Shard& shard : state.model) shard.local = copies ? shard.local.detach().clone() : shard.local.detach();
  return std::move(state.model);
}

// Gives normalisations over all ranks a group of the new world.
void renew_groups(torch::nn::Module& model, const Context& context) {
  Group group;
  for (const auto& [name, module] : modules_of(model)) {
    auto* const norm = dynamic_cast<SyncBatchNormImpl*>(module);
    if (norm == nullptr) continue;
    if (!group.member()) group = context.new_group(context.world().ranks());
    norm->set_group(group);
  }
}

// Description of a rank's state before it is moved.
struct Holder {
  std::int64_t steps = -1;  // -1: no valid state
  int world_size = 0;       // size of its last world
  auto operator<=>(const Holder&) const = default;
};

}  // namespace

void SynchronousTraining::state_loaded(std::int64_t steps) {
  Training::state_loaded(steps);
  steps_ = steps;
  lost_.clear();
}

void SynchronousTraining::hand_over(const std::vector<int>& leaving) {
  const Group& world = strategy_->context().world();
  const auto leaves = [&](int rank) {
    return std::find(leaving.begin(), leaving.end(), rank) != leaving.end();
  };
  std::vector<int> staying;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!leaves(rank)) staying.push_back(rank);
  }
  const bool known =
      std::all_of(leaving.begin(), leaving.end(), [&](int rank) { return rank >= 0 && rank < world.size(); });
  if (!known || staying.empty()) {
    throw UsageError(str("hand_over: ranks {", join(leaving, ", "), "} cannot leave a world of ",
                         world.size(), " ranks of which some stay"));
  }
  prepared_->parts().flush();
  ShardedState own = local_state(*prepared_, optimizer_.get(), precision_.master_weights());
  std::vector<Shard> optimizer = std::move(own.optimizer);
  handed_over_.full_copies = kept_model(std::move(own), prepared_->parts());
  const auto take_over = [&](std::vector<Shard> held) {
    const ShardDirectory directory(std::move(held), world);
    std::vector<Shard> taken;
    std::size_t next = 0;
    for (Shard& shard : directory.held_only_by(leaving)) {
      if (staying[next++ % staying.size()] != world.rank()) continue;
      shard.local = at::empty(shard.local_sizes(), directory.dtype(shard.name));
      taken.push_back(std::move(shard));
    }
    directory.fetch(taken);
    return taken;
  };
  handed_over_.model = take_over(handed_over_.full_copies);
  handed_over_.optimizer = take_over(std::move(optimizer));
  // Waits, because kept state may come from memory of a leaving rank.
  barrier(world);
}

int SynchronousTraining::rebuild(const Context& context) {
  const Group& before = strategy_->context().world();
  const bool is_complete = prepared_->parts().is_flushed() && lost_.empty() &&
                           !(before.member() && has_lost_results(*before.backend()));
  const Holder mine{is_complete ? steps_ : -1, strategy_->context().world_size()};
  strategy_->rebuild(context);
  ShardedState held = local_state(*prepared_, optimizer_.get(), precision_.master_weights());
  nlohmann::json description = std::move(held.optimizer_description);
  std::vector<Shard> optimizer = std::move(held.optimizer);
  for (Shard& shard : optimizer) shard.local = shard.local.detach();
  append(optimizer, std::move(handed_over_.optimizer));
  std::vector<Shard> model = std::move(handed_over_.full_copies);
  if (model.empty()) model = kept_model(std::move(held), prepared_->parts());
  // Buffers are current in the prepared model: the new world's rank 0 has broadcast them.
  for (const ModelTensor& buffer : prepared_->parts().buffers()) {
    for (Shard& shard : model) {
      if (shard.name == buffer.name) shard.local = buffer.tensor.clone();
    }
  }
  append(model, std::move(handed_over_.model));
  handed_over_ = {};

  // Gathers before any rank releases memory that others may read.
  std::vector<Holder> holders;
  for (const nlohmann::json& rank : all_gather_object({mine.steps, mine.world_size}, context.world()))
    holders.push_back({rank.at(0), rank.at(1)});
  const auto newest = std::max_element(holders.begin(), holders.end());
  const auto source = static_cast<int>(newest - holders.begin());
  prepare_anew(context);

  const nlohmann::json told = broadcast_object(
      {{"optimizer", std::move(description)}, {"precision", precision_.state()}}, context.world(), source);
  steps_ = newest->steps;
  if (mine != *newest || newest->steps < 0) {
    model.clear();
    optimizer.clear();
  }
  precision_.restore(told.at("precision"));
  lost_ = "part of the training's state is on no rank";
  take_state(std::move(model), std::move(optimizer), told.at("optimizer"));
  lost_.clear();
  return source;
}

void SynchronousTraining::prepare_anew(const Context& context) {
  prepared_->parts().give_back_model();
  optimizer_.reset();
  prepared_.reset();
  precision_.set_group(context.world());
  renew_groups(*model_.module, context);
  prepared_ = strategy_->prepare(model_.module);
  prepared_->combine_totals_over(strategy_->replicas());
  const std::string begins_anew = prepared_->restore_communication({});
  if (!begins_anew.empty() && context.rank() == 0) log::warning("in the new world ", begins_anew);
  if (factory_) compile(factory_, loss_);
}

void SynchronousTraining::take_state(std::vector<Shard> model, std::vector<Shard> optimizer,
                                     const nlohmann::json& description) {
  const Group& world = strategy_->context().world();
  const std::string what =
      steps_ < 0 ? std::string("no rank has a usable state, because a failure ended its operations;")
                 : str("the state after ", steps_, " steps of the remaining ranks");
  std::vector<Shard> wanted = local_state(*prepared_, nullptr, precision_.master_weights()).model;
  const std::vector<std::string> missing = ShardDirectory(std::move(model), world).fetch(wanted);
  for (const at::Tensor& own : own_parameters(*prepared_, precision_.master_weights()))
    wanted.push_back(full_shard("", own));
  const ShardDirectory of_optimizer(std::move(optimizer), world);
  try {
    if (!missing.empty()) throw DataError(str(what, " is not complete: ", join(missing, "; ")));
    if (optimizer_ && !description.is_null())
      load_optimizer(*optimizer_, wanted, description, of_optimizer, what);
  } catch (const DataError& error) {
    lost_ = str(error.what(), ". Restore a checkpoint, or have ranks hand over before they leave");
    throw DataError(lost_);
  }
  Training::state_loaded(steps_);
}

}  // namespace rondo
