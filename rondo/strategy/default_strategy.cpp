#include "rondo/strategy/default_strategy.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/one_device.h"
#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/synchronous_training.h"

namespace rondo {

DefaultStrategy::DefaultStrategy(const std::optional<Context>& context) : Strategy("default", context) {
  if (!context) return;
  placement_.replicas = context->world();
  if (context->world_size() != 1) {
    throw UsageError(str("strategy default trains on one process, but this job has ", context->world_size(),
                         "; use strategy ddp, or start one process"));
  }
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

}  // namespace rondo
