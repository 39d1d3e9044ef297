#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/parallel/replicas/replica_threads.h"

namespace rondo {

// Values that the replicas of all processes combine while they run.
class ReplicaValues {
 public:
  // `threads` are this process's replicas, and outlive the object; `workers` are all processes.
  ReplicaValues(ReplicaThreads& threads, Group workers);

  // Within ReplicaThreads::run(), called by every replica in the same order with values of one shape: the
  // same result for all, in memory of its own for each. Throws CommunicationError when a process is lost.
  at::Tensor all_reduce(ReduceOp op, const at::Tensor& value);

 private:
  ReplicaThreads& threads_;
  Group workers_;
  std::vector<at::Tensor> values_;  // by replica
  at::Tensor result_;
};

}  // namespace rondo
