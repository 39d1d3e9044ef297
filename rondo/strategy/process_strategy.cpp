#include "rondo/strategy/process_strategy.h"

#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/synchronous_training.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {
std::unique_ptr<Training> ProcessStrategy::prepare(const Recipe& recipe) {
  return std::make_unique<SynchronousTraining>(*this, recipe);
}

ReplicaValue ProcessStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  const ReplicaContext replica(*this, context_.rank(), [this](ReduceOp op, const at::Tensor& value) {
    return reduce_values(op, {value}, {}, context_.world());
  });
  return step(context_.rank());
}

at::Tensor ProcessStrategy::reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis) {
  return reduce_values(op, {value.only()}, axis, context_.world());
}

at::Tensor ProcessStrategy::gather(const ReplicaValue& value, std::int64_t axis) {
  return gather_values({value.only()}, axis, context_.world());
}

}  // namespace rondo
