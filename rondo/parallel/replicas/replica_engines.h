#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "rondo/backend/engine/request.h"
#include "rondo/parallel/replicas/replica_threads.h"

namespace rondo {

class Context;

// Communicators between the replicas of a process, one in each replica's thread: tf.distribute's
// NcclAllReduce.
class ReplicaEngines {
 public:
  // Makes a communicator of `engine` in each replica's thread. `timeout` is the longest wait of a reduction.
  // Throws as make_communicator() does.
  ReplicaEngines(ReplicaThreads& threads, const std::string& engine, Duration timeout);

  // Adds up the dense tensors of all replicas, in place. Every replica calls it within ReplicaThreads::run(),
  // with tensors of the same sizes and dtypes in the same order. They travel in `num_packs` flat packs; 0:
  // each tensor by itself.
  void all_reduce(int replica, const std::vector<at::Tensor>& tensors, int num_packs);

 private:
  std::vector<Communicator> communicators_;  // by replica
};

// Throws UsageError, which begins with `what`, where a replica is on the CPU, whose memory NCCL does not
// take.
void require_cards(const std::vector<c10::Device>& devices, const std::string& what);

// Throws UsageError, which begins with `what`, where the job's processes are not connected by engine nccl.
void require_nccl(const Context& context, const std::string& what);

}  // namespace rondo
