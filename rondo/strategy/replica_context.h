#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "rondo/backend/collectives.h"

namespace rondo {

class Strategy;

// What code inside Strategy::run() knows of the replica that it runs for.
class ReplicaContext {
 public:
  // How replicas combine a value.
  using AllReduce = std::function<at::Tensor(ReduceOp op, const at::Tensor& value)>;

  // Called by strategies, for as long as the replica runs. `strategy` outlives the object.
  ReplicaContext(Strategy& strategy, int replica, AllReduce all_reduce);
  ~ReplicaContext();
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  // The innermost one of the calling thread; null outside of run().
  static const ReplicaContext* current();

  Strategy& strategy() const { return strategy_; }  // that runs it
  int replica() const { return replica_; }          // among Strategy::num_replicas_in_sync()
  // Combines a value of all replicas, each of which calls it in the same order with values of one shape; the
  // result is the same for all, and of the caller's own. Throws CommunicationError when a rank is lost.
  at::Tensor all_reduce(ReduceOp op, const at::Tensor& value) const { return all_reduce_(op, value); }

 private:
  Strategy& strategy_;
  int replica_;
  AllReduce all_reduce_;
  const ReplicaContext* outer_;
};

}  // namespace rondo
