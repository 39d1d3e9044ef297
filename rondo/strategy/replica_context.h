#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "rondo/backend/collectives.h"

namespace rondo {

class Strategy;

// The replica for which code inside Strategy::run() runs.
class ReplicaContext {
 public:
  // Combines a value of all replicas.
  using AllReduce = std::function<at::Tensor(ReduceOp op, const at::Tensor& value)>;

  // Constructed by strategies, for as long as the replica runs. `strategy` must outlive the object.
  ReplicaContext(Strategy& strategy, int replica, AllReduce all_reduce);
  ~ReplicaContext();
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  // Returns the innermost context of the calling thread; null outside run().
  static const ReplicaContext* current();

  Strategy& strategy() const { return strategy_; }  // strategy that runs the replica
  int replica() const { return replica_; }          // index among Strategy::num_replicas_in_sync()
  // Combines a value of all replicas. Each replica calls it in the same order with values of one shape. The
  // result is the same for all, in new memory for each. Throws CommunicationError if a rank is lost.
  at::Tensor all_reduce(ReduceOp op, const at::Tensor& value) const { return all_reduce_(op, value); }

 private:
  Strategy& strategy_;
  int replica_;
  AllReduce all_reduce_;
  const ReplicaContext* outer_;
};

}  // namespace rondo
