#include "rondo/parallel/sharded/shard_optimizer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"
#include "rondo/nn/gradient_norm.h"
#include "rondo/nn/optimizers/optimizer_fields.h"
#include "rondo/strategy/clip_shards.h"

namespace rondo {
namespace {

// Throws if the optimizer has the model's own parameters: the model does not compute with its updates.
void check_parameters(const torch::optim::Optimizer& optimizer, const ShardedUnits& units,
                      const std::vector<ModelTensor>& model) {
  std::set<const c10::TensorImpl*> optimized;
  bool all_the_models = true;  // whether all optimized tensors are the model's own
  for (const auto& unit : units) {
    for (const ModelTensor& parameter : unit->optimized())
      optimized.insert(parameter.tensor.unsafeGetTensorImpl());
    all_the_models = all_the_models && unit->sharded_parameters().empty();
  }
  if (all_the_models) return;
  std::map<const c10::TensorImpl*, std::string> own;
  for (const ModelTensor& parameter : model) {
    const c10::TensorImpl* const tensor = parameter.tensor.unsafeGetTensorImpl();
    if (!optimized.contains(tensor)) own.emplace(tensor, parameter.name);
  }
  bool has_some = false;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const c10::TensorImpl* const tensor = parameter.unsafeGetTensorImpl();
      has_some = has_some || optimized.contains(tensor);
      if (const auto found = own.find(tensor); found != own.end()) {
        throw UsageError(str("the optimizer was made of the model's own parameters ('", found->second,
                             "'), which never change under this strategy by their gradients: make the "
                             "optimizer after prepare() or fully_shard(), of prepared->module().parameters() "
                             "or of parameters() of the FullyShardedModel"));
      }
    }
  }
  if (!has_some) {
    throw UsageError(
        "the optimizer has no parameter of this prepared model: make it of prepared->module().parameters() "
        "or of parameters() of the FullyShardedModel, and give each prepared model its own optimizer");
  }
}

// Optimizer state under a key that is no parameter. It throws when the optimizer is saved.
template <class State>
struct UnsavedState final : State {
  void serialize(torch::serialize::OutputArchive& /*archive*/) const override {
    throw UsageError(
        "torch::save of an optimizer would save this rank's shards alone, which fit no other number of ranks "
        "and no other strategy. Save the training with rondo::save (rondo/train.h), or the result of "
        "rondo::full_optimizer_state_dict (rondo/strategy.h)");
  }
};

}  // namespace

// The optimizer gets flat shards of parameters, so its update must be elementwise. All known kinds fulfil
// this, except for norms, which add_norms() sums over the ranks.
void ShardOptimizer::check(const torch::optim::Optimizer& optimizer, const std::vector<ModelTensor>& model) {
  if (checked_ == &optimizer) return;
  const bool sees_parts = shards_state() || files_ != nullptr;
  if (sees_parts && !with_optimizer_kind(optimizer, [](auto) {})) {
    throw UsageError(
        "this optimizer cannot be sharded: each rank optimises flat shards of parameters, which is right for "
        "rules that treat every element alone. SGD, Adam, AdamW, Adagrad, RMSprop and classes derived from "
        "them do, and Lion; LAMB and LARS add their norms over the ranks. For others use strategy ddp");
  }
  check_parameters(optimizer, units_, model);
  checked_ = &optimizer;
}

bool ShardOptimizer::shards_state() const {
  return std::any_of(units_.begin(), units_.end(),
                     [](const auto& unit) { return shards_optimizer(unit->sharding()); });
}

double ShardOptimizer::clip_gradients(double max_norm, const Group& shard_group) const {
  std::vector<at::Tensor> sharded, replicated;
  for (const auto& unit : units_) {
    std::vector<at::Tensor>& parameters = shards_optimizer(unit->sharding()) ? sharded : replicated;
    for (const ModelTensor& parameter : unit->optimized()) parameters.push_back(parameter.tensor);
  }
  const std::vector<at::Tensor> of_shards = gradients_of(sharded), whole = gradients_of(replicated);
  const double norm = norm_over_ranks(of_shards, whole, shard_group);
  scale_to_norm(of_shards, norm, max_norm);
  scale_to_norm(whole, norm, max_norm);
  return norm;
}

void ShardOptimizer::add_norms(const std::vector<at::Tensor>& parameters, at::Tensor& squares,
                               const Group& shard_group) const {
  PartSet parts;
  for (const auto& unit : units_) {
    if (!shards_optimizer(unit->sharding())) continue;
    for (const ModelTensor& parameter : unit->optimized())
      parts.insert(parameter.tensor.unsafeGetTensorImpl());
  }
  add_norms_of_parts(parameters, parts, shard_group, squares);
}

void ShardOptimizer::step(torch::optim::Optimizer& optimizer) {
  if (files_ != nullptr) {
    step_into_files(optimizer);
  } else {
    optimizer.step();
  }
  guard_state(optimizer);
}

void ShardOptimizer::guard_state(torch::optim::Optimizer& optimizer) {
  if (std::exchange(guarded_, &optimizer) == &optimizer || !shards_state()) return;
  with_optimizer_kind(optimizer, [&](auto kind) {
    optimizer.state()[this] = std::make_unique<UnsavedState<typename decltype(kind)::State>>();
  });
}

void ShardOptimizer::step(torch::optim::Optimizer& optimizer, const ShardedUnit& unit) {
  {
    const MemoryScope scope(MemoryCategory::optimizer_state, unit.name());
    optimizer.step();
  }
  if (files_ != nullptr) files_->take_over(optimizer);
  guard_state(optimizer);
}

// In the first step, runs one unit after the other, so that only one unit's new optimizer state is in memory
// at a time.
void ShardOptimizer::step_into_files(torch::optim::Optimizer& optimizer) {
  if (!optimizer.state().empty()) {
    optimizer.step();
    files_->take_over(optimizer);
    return;
  }
  std::vector<std::vector<std::pair<at::Tensor, at::Tensor>>> gradients;  // by unit: tensor and its gradient
  for (const std::size_t unit : order_) {
    gradients.emplace_back();
    for (const ModelTensor& optimized : units_[unit]->optimized()) {
      gradients.back().emplace_back(optimized.tensor, std::exchange(optimized.tensor.mutable_grad(), {}));
    }
  }
  for (const auto& unit : gradients) {
    for (const auto& [tensor, gradient] : unit) tensor.mutable_grad() = gradient;
    optimizer.step();
    files_->take_over(optimizer);
    for (const auto& [tensor, gradient] : unit) tensor.mutable_grad().reset();
  }
  for (const auto& unit : gradients) {
    for (const auto& [tensor, gradient] : unit) tensor.mutable_grad() = gradient;
  }
}

}  // namespace rondo
