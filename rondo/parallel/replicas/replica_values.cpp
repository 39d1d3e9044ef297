#include "rondo/parallel/replicas/replica_values.h"

#include "rondo/strategy/value_collectives.h"

namespace rondo {

ReplicaValues::ReplicaValues(ReplicaThreads& threads, Group workers)
    : threads_(threads), workers_(std::move(workers)), values_(static_cast<std::size_t>(threads.size())) {}

at::Tensor ReplicaValues::all_reduce(ReduceOp op, const at::Tensor& value) {
  const int replica = threads_.current();
  values_[static_cast<std::size_t>(replica)] = value;
  threads_.meet();
  if (replica == 0) result_ = reduce_values(op, values_, {}, workers_);
  threads_.meet();
  return result_.to(value.device(), result_.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace rondo
