#include "rondo/strategy/distributed_variable.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {
namespace {

bool inside_run(const Strategy& strategy) {
  const ReplicaContext* const context = ReplicaContext::current();
  return context != nullptr && &context->strategy() == &strategy;
}

}  // namespace

DistributedVariable::DistributedVariable(Strategy& strategy, const at::Tensor& initial, Options options)
    : strategy_(strategy, "DistributedVariable"), options_(options) {
  at::Tensor first = initial.detach().clone();
  broadcast(first, strategy.context().world());
  for (int replica = 0; replica < strategy.input_shard().replicas; ++replica)
    copies_.push_back(first.clone());
}

at::Tensor DistributedVariable::own() const {
  const InputShard shard = strategy_->input_shard();
  return copies_[static_cast<std::size_t>(ReplicaContext::current()->replica() -
                                          shard.index * shard.replicas)];
}

at::Tensor DistributedVariable::aggregated(const at::Tensor& value) const {
  const ReplicaContext& context = *ReplicaContext::current();
  switch (options_.aggregation) {
    case VariableAggregation::sum:
      return context.all_reduce(ReduceOp::SUM, value);
    case VariableAggregation::mean:
      return context.all_reduce(ReduceOp::AVG, value);
    case VariableAggregation::only_first_replica:
      return context.all_reduce(ReduceOp::SUM, context.replica() == 0 ? value : at::zeros_like(value));
    case VariableAggregation::none:
      break;
  }
  throw UsageError(
      "a variable with synchronization on_write and no aggregation was assigned inside run(), where replicas "
      "may "
      "bring different values; make it with aggregation sum, mean or only_first_replica");
}

at::Tensor DistributedVariable::value() const {
  if (inside_run(*strategy_)) return own();
  if (options_.synchronization == VariableSynchronization::on_write) return copies_.front();
  const bool combines = options_.synchronization == VariableSynchronization::on_read &&
                        options_.aggregation != VariableAggregation::none;
  if (!combines) {
    throw UsageError(
        "a variable whose copies nothing combines (synchronization none, or on_read without aggregation) was "
        "read "
        "outside of run(); read copies(), or make it with aggregation sum, mean or only_first_replica");
  }
  if (options_.aggregation == VariableAggregation::only_first_replica) {
    at::Tensor first = copies_.front().clone();
    broadcast(first, strategy_->context().world());
    return first;
  }
  const bool adds = options_.aggregation == VariableAggregation::sum;
  return reduce_values(adds ? ReduceOp::SUM : ReduceOp::AVG, copies_, {}, strategy_->context().world());
}

void DistributedVariable::assign(const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  if (inside_run(*strategy_)) {
    const bool writes = options_.synchronization == VariableSynchronization::on_write;
    own().copy_(writes ? aggregated(value) : value);
    return;
  }
  const bool shares = options_.synchronization == VariableSynchronization::on_read &&
                      options_.aggregation == VariableAggregation::sum;
  for (at::Tensor& copy : copies_)
    copy.copy_(shares ? value / static_cast<double>(strategy_->num_replicas_in_sync()) : value);
}

void DistributedVariable::assign_add(const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  if (inside_run(*strategy_)) {
    const bool writes = options_.synchronization == VariableSynchronization::on_write;
    own().add_(writes ? aggregated(value) : value);
    return;
  }
  const bool shares = options_.synchronization == VariableSynchronization::on_read &&
                      options_.aggregation == VariableAggregation::sum;
  for (at::Tensor& copy : copies_)
    copy.add_(shares ? value / static_cast<double>(strategy_->num_replicas_in_sync()) : value);
}

}  // namespace rondo
