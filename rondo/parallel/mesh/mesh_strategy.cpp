#include "rondo/parallel/mesh/mesh_strategy.h"

#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {

Group MeshStrategy::readers_of(const Context& context) {
  if (size_along(context.mesh(), "context") == 1) return {};
  if (size_along(context.mesh(), "expert") == 1) return context.group("data");
  return context.new_group_along({std::begin(kReplicaDimensions), std::end(kReplicaDimensions)});
}

ReplicaPlacement MeshStrategy::placement() const {
  const Group ranks = readers_.member() ? readers_ : inner_->replicas();
  const InputShard shard{ranks.rank(), ranks.size()};
  return {.num_replicas_in_sync = ranks.size(), .input = shard, .evaluation = shard, .replicas = ranks};
}

ReplicaValue MeshStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  const Group ranks = replicas();
  const ReplicaContext replica(*this, ranks.rank(), [&](ReduceOp op, const at::Tensor& value) {
    return reduce_values(op, {value}, {}, ranks);
  });
  return step(ranks.rank());
}

}  // namespace rondo
