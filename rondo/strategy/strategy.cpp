#include "rondo/strategy/strategy.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/default_strategy.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {
namespace {

thread_local Strategy* current_strategy = nullptr;

// The strategies that override rebuild().
constexpr const char* kRebuilt =
    "ddp, tpu, one_device, zero1, zero2, zero3, zero3_keep, hsdp, planned and random";

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the module
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
  throw UsageError(str("strategy ", name(), " cannot go on in another world; ", kRebuilt, " can"));
}

Strategy::Scope Strategy::scope() { return Scope(this); }

Strategy* Strategy::current() { return current_strategy; }

Strategy::Scope::Scope(Strategy* strategy) : outer_(current_strategy) { current_strategy = strategy; }

Strategy::Scope::~Scope() { current_strategy = outer_; }

}  // namespace rondo
