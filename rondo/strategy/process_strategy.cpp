#include "rondo/strategy/process_strategy.h"

#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/synchronous_training.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {
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

}  // namespace rondo
