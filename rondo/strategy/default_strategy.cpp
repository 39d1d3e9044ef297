#include "rondo/strategy/default_strategy.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/one_device.h"
#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/synchronous_training.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {
DefaultStrategy::DefaultStrategy(std::optional<Context> context) : context_(std::move(context)) {
  if (context_ && context_->world_size() != 1) {
    throw UsageError(str("strategy default trains on one process, but this job has ", context_->world_size(),
                         "; use strategy ddp, or start one process"));
  }
}

const Context& DefaultStrategy::context() const {
  if (context_) return *context_;
  throw UsageError(
      "outside of every scope there is no job: make a strategy with the context of rondo::init(), or enter "
      "its "
      "scope()");
}

std::unique_ptr<Training> DefaultStrategy::prepare(const Recipe& recipe) {
  return std::make_unique<SynchronousTraining>(*this, recipe);
}

std::unique_ptr<PreparedModel> DefaultStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  return local_model(std::move(module));
}

ReplicaValue DefaultStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  const ReplicaContext replica(*this, 0, [](ReduceOp, const at::Tensor& value) { return value.clone(); });
  return step(0);
}

at::Tensor DefaultStrategy::reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis) {
  return reduce_values(op, {value.only()}, axis, Group());
}

at::Tensor DefaultStrategy::gather(const ReplicaValue& value, std::int64_t axis) {
  return gather_values({value.only()}, axis, Group());
}

}  // namespace rondo
