#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/memory/scope.h"
#include "rondo/nn/optimizer_fields.h"
#include "rondo/parallel/sharded/exposed_time.h"
#include "rondo/parallel/sharded/sharded_model.h"

// What a sharded model does with its gradients: clipping, the optimizer's step, now or unit by unit as they
// arrive.
namespace rondo {
namespace {

// An optimizer sees flat parts of parameters, so its rule must treat each element alone, as those of all the
// known kinds do.
void check_elementwise(const torch::optim::Optimizer& optimizer) {
  if (with_optimizer_kind(optimizer, [](auto) {})) return;
  throw UsageError(
      "this optimizer cannot be sharded: each rank optimises flat parts of parameters, which is right for "
      "rules that treat every element alone. SGD, Adam, AdamW, Adagrad, RMSprop and classes derived from "
      "them "
      "do; for others use strategy ddp");
}

}  // namespace

double ShardedModel::clip_gradients(double max_norm) {
  const at::NoGradGuard no_grad;
  at::Tensor squares = at::zeros({}, at::kDouble);  // of shards, then of what every rank has
  at::Tensor replicated = at::zeros({}, at::kDouble);
  std::vector<at::Tensor> gradients;
  for (const auto& unit : units_) {
    at::Tensor& sum = shards_optimizer(unit->sharding()) ? squares : replicated;
    for (const ModelTensor& parameter : unit->optimized()) {
      const at::Tensor& grad = parameter.tensor.grad();
      if (!grad.defined() || grad.numel() == 0) continue;
      gradients.push_back(grad);
      sum += at::linalg_vector_norm(grad, 2, {}, false, at::kDouble).square().cpu();
    }
  }
  at::Tensor message = squares.reshape({1});
  all_reduce(message, environment_.shard_group, ReduceOp::SUM);
  const double norm = std::sqrt((message[0] + replicated).item<double>());
  // As torch's clip_grad_norm_ does it.
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1.0) {
    for (at::Tensor& grad : gradients) grad.mul_(scale);
  }
  return norm;
}

bool ShardedModel::shards_optimizer_state() const {
  return std::any_of(units_.begin(), units_.end(),
                     [](const auto& unit) { return shards_optimizer(unit->sharding()); });
}

void ShardedModel::step(torch::optim::Optimizer& optimizer) {
  if (checked_optimizer_ != &optimizer) {
    if (shards_optimizer_state() || offloads_optimizer_) check_elementwise(optimizer);
    checked_optimizer_ = &optimizer;
  }
  // The next step of a plan begins with its slot for the update.
  if (launches_) scheduler_->reach(first_slot_ + launches_->slots());
  if (waits_later_) {
    pending_optimizer_ = &optimizer;
    // Shards first, in the order of need: each unit's parameters set out as soon as its gradients are in,
    // while those behind are still awaited. Replicated units have their gradients on the way until they are
    // needed, but where a plan says what the link carries meanwhile.
    for (const std::size_t unit : order_) {
      if (progress_[unit].pending && (launches_ || shards_optimizer(units_[unit]->sharding()))) update(unit);
    }
  } else {
    if (offloads_optimizer_) {
      step_into_files(optimizer);
    } else {
      optimizer.step();
    }
    for (const std::size_t unit : order_) {
      // A plan counts gradients from their backward to the update.
      if (launches_) units_[unit]->remove_gradients();
      after_update(unit);
    }
  }
  waits_later_ = false;
  collect_records();
}

// What the optimizer remembers of a unit is in memory only from its first step until that is over, one unit
// after the other.
void ShardedModel::step_into_files(torch::optim::Optimizer& optimizer) {
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

// The optimizer passes parameters without gradients by, so one unit's gradients make it a step of that unit.
void ShardedModel::update(std::size_t unit) {
  ShardedUnit& updated = *units_[unit];
  {
    const ExposedTime exposed(exposed_ns_);
    updated.finish_gradients(/*accumulate=*/reduce_every_pass_);
  }
  updated.install_gradients(unused_);
  {
    const MemoryScope scope(MemoryCategory::optimizer_state, updated.name());
    pending_optimizer_->step();
  }
  if (offloads_optimizer_) files_->take_over(*pending_optimizer_);
  updated.remove_gradients();
  progress_[unit].pending = false;
  after_update(unit);
}

void ShardedModel::after_update(std::size_t unit) {
  ShardedUnit& updated = *units_[unit];
  if (updated.mapped()) must_meet_ = true;
  updated.mark_updated();
  if (!shards_parameters(updated.sharding())) updated.start_gather(update_order(unit));
}

}  // namespace rondo
