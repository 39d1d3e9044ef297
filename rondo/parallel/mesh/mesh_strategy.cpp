#include "rondo/parallel/mesh/mesh_strategy.h"

#include "rondo/strategy/replica_context.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {

Group MeshStrategy::readers_of(const Context& context) {
  if (size_along(context.mesh(), "context") == 1) return {};
  if (size_along(context.mesh(), "expert") == 1) return context.group("data");
  return context.new_group_along({std::begin(kReplicaDimensions), std::end(kReplicaDimensions)});
}

ReplicaValue MeshStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  const ReplicaContext replica(*this, replicas().rank(), [this](ReduceOp op, const at::Tensor& value) {
    return reduce_values(op, {value}, {}, replicas());
  });
  return step(replicas().rank());
}

at::Tensor MeshStrategy::reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis) {
  return reduce_values(op, {value.only()}, axis, replicas());
}

at::Tensor MeshStrategy::gather(const ReplicaValue& value, std::int64_t axis) {
  return gather_values({value.only()}, axis, replicas());
}

}  // namespace rondo
