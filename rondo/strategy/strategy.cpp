#include "rondo/strategy/strategy.h"

#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/one_device.h"
#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/strategy_reference.h"
#include "rondo/strategy/synchronous_training.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {
namespace {

thread_local Strategy* current_strategy = nullptr;

// Strategies that override rebuild().
constexpr const char* kRebuilt =
    "ddp, tpu, one_device, zero1, zero2, zero3, zero3_keep, hsdp, planned and random";

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): overriding functions keep the module
std::unique_ptr<PreparedModel> Strategy::prepare(std::shared_ptr<torch::nn::Module>) {
  throw UsageError(
      str("strategy ", name(),
          " has not one replica a process that a loop of your own could train; use a Trainer, or "
          "prepare(Recipe)"));
}

const at::Tensor& ReplicaValue::only() const {
  if (tensors_.size() == 1) return tensors_.front();
  throw UsageError(
      str("this strategy has one replica per process, so a value has one tensor, not ", tensors_.size()));
}

const Context& Strategy::context() const {
  if (context_) return *context_;
  throw UsageError(
      "outside of every scope there is no job: make a strategy with the context of rondo::init(), or enter "
      "its scope()");
}

ReplicaValue Strategy::run(const std::function<at::Tensor(const Batch&)>& step,
                           std::span<const Batch> inputs) {
  const ReplicaPlacement place = placement();
  const InputShard& shard = place.input;
  if (inputs.size() != static_cast<std::size_t>(shard.replicas)) {
    throw UsageError(str("run was given ", inputs.size(), " batches for the ", shard.replicas,
                         " replicas of this process"));
  }
  if (place.joins_batches) return run([&](int) { return step(joined_batch(inputs)); });
  return run([&](int replica) {
    return step(inputs[static_cast<std::size_t>(replica - shard.index * shard.replicas)]);
  });
}

const std::vector<at::Tensor>& Strategy::checked(const ReplicaValue& value, const ReplicaPlacement& placement,
                                                 const std::string& name) {
  const int calls = placement.joins_batches ? 1 : placement.input.replicas;
  if (value.size() == static_cast<std::size_t>(calls)) return value.tensors();
  throw UsageError(str("strategy ", name, " calls a step ", calls,
                       " times in this process, but the value has ", value.size(), " tensors"));
}

at::Tensor Strategy::reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis) {
  const ReplicaPlacement place = placement();
  return reduce_values(op, checked(value, place, name_), axis, place.replicas);
}

at::Tensor Strategy::gather(const ReplicaValue& value, std::int64_t axis) {
  const ReplicaPlacement place = placement();
  return gather_values(checked(value, place, name_), axis, place.replicas);
}

Strategy& Strategy::current_or_default() {
  if (current_strategy != nullptr) return *current_strategy;
  thread_local DefaultStrategy none;
  return none;
}

void Strategy::rebuild(const Context& /*context*/) {
  throw UsageError(str("strategy ", name(), " cannot be rebuilt for another world; ", kRebuilt, " can"));
}

Strategy::Scope Strategy::scope() { return Scope(this); }

Strategy* Strategy::current() { return current_strategy; }

Strategy::Scope::Scope(Strategy* strategy) : outer_(current_strategy) { current_strategy = strategy; }

Strategy::Scope::~Scope() { current_strategy = outer_; }

std::unique_ptr<Training> ProcessStrategy::prepare(const Recipe& recipe) {
  return std::make_unique<SynchronousTraining>(*this, recipe);
}

ReplicaPlacement ProcessStrategy::placement() const {
  const Group& world = context().world();
  const InputShard shard{world.rank(), world.size()};
  return {.num_replicas_in_sync = world.size(), .input = shard, .evaluation = shard, .replicas = world};
}

ReplicaValue ProcessStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  const ReplicaContext replica(*this, context().rank(), [this](ReduceOp op, const at::Tensor& value) {
    return reduce_values(op, {value}, {}, context().world());
  });
  return step(context().rank());
}

namespace {

thread_local const ReplicaContext* current_replica_context = nullptr;

}  // namespace

ReplicaContext::ReplicaContext(Strategy& strategy, int replica, AllReduce all_reduce)
    : strategy_(strategy),
      replica_(replica),
      all_reduce_(std::move(all_reduce)),
      outer_(std::exchange(current_replica_context, this)) {}

ReplicaContext::~ReplicaContext() { current_replica_context = outer_; }

const ReplicaContext* ReplicaContext::current() { return current_replica_context; }

StrategyReference::StrategyReference(Strategy& strategy, std::string holder)
    : strategy_(&strategy), lifetime_(strategy.lifetime_), holder_(std::move(holder)) {}

Strategy& StrategyReference::operator*() const {
  if (!lifetime_.expired()) return *strategy_;
  throw UsageError(str("the strategy of this ", holder_,
                       " has ended; keep it in a variable that lives longer: `auto strategy"
                       " = rondo::all_strategies().make(...);` before the ",
                       holder_, ", which takes `*strategy`"));
}

}  // namespace rondo
