#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rondo/backend/engine/request.h"
#include "rondo/base/replica.h"
#include "rondo/memory/tracker.h"

namespace rondo {

// The threads of several replicas in one process, which live as long as the object. Replica 0 is the thread
// that calls run(). The other threads wait for work by spinning, then by sleeping, because a step of a small
// model takes less time than starting a thread. Each replica has a number for tracked memory and log lines
// (rondo/base/replica.h). One thread uses an object.
class ReplicaThreads {
 public:
  // Gives every replica an equal share of libtorch's intra-op threads (at::get_num_threads(), at least one),
  // also for the calling thread. `replicas` must be one or more.
  explicit ReplicaThreads(int replicas);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  int size() const { return replicas_; }

  // Calls body(replica) for all replicas in parallel, each in its thread, and returns when all have ended. If
  // some throw, rethrows the exception of the lowest replica with the replica's number in its message, with
  // the same type for rondo's own exceptions. Throws UsageError within a run().
  void run(const std::function<void(int replica)>& body);
  // Calls `body` in the thread of one replica.
  void run_on(int replica, const std::function<void()>& body);
  // Like above, and sets `device` as the thread's current device. Replica 0 runs in the caller's thread,
  // whose current device does not change if the replica is on the CPU.
  void run_on(int replica, c10::Device device, const std::function<void()>& body);
  // Blocks until all replicas have called it; a barrier that makes earlier writes visible to all. Call it
  // within run(). Throws CancelledError if a replica has thrown.
  void meet();

  // Returns the replica of the calling thread; 0 outside of run().
  int current() const;
  // Returns the memory tracker of a replica.
  MemoryTracker& memory(int replica) const { return *trackers_[static_cast<std::size_t>(replica)]; }
  // Returns the peak memory of each replica in bytes, if the process tracks it.
  std::vector<std::uint64_t> peak_bytes() const;

 private:
  void work(int replica);
  void run_one(int replica);
  // Blocks while `word` equals `value`.
  void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value);
  void change(std::atomic<std::uint32_t>& word);
  void rethrow_first();

  int replicas_;
  int torch_threads_;
  int spins_;
  const std::function<void(int)>* body_ = nullptr;  // argument of the current run()
  std::vector<std::exception_ptr> errors_;          // by replica
  std::vector<MemoryTracker*> trackers_;
  bool ends_ = false;

  // Words that threads wait on, each on its own cache line.
  alignas(64) std::atomic<std::uint32_t> job_ = 0;       // incremented by every run()
  alignas(64) std::atomic<std::uint32_t> done_ = 0;      // incremented when all other replicas have ended
  alignas(64) std::atomic<std::uint32_t> meeting_ = 0;   // incremented when all replicas have called meet()
  alignas(64) std::atomic<std::uint32_t> arrived_ = 0;   // replicas waiting in meet()
  alignas(64) std::atomic<std::uint32_t> at_work_ = 0;   // other replicas that have not ended
  alignas(64) std::atomic<std::uint32_t> sleepers_ = 0;  // threads asleep on a word
  std::atomic<bool> failed_ = false;

  std::vector<std::thread> threads_;
};

class Context;

// Communicators between the replicas of a process, one in each replica's thread, like NcclAllReduce of
// tf.distribute.
class ReplicaEngines {
 public:
  // Creates a communicator of `engine` in each replica's thread. `timeout` applies to each reduction. Throws
  // like make_communicator().
  ReplicaEngines(ReplicaThreads& threads, const std::string& engine, Duration timeout);

  // Sums the dense tensors of all replicas, in place. Every replica calls it within ReplicaThreads::run(),
  // with tensors of the same sizes and dtypes in the same order. `num_packs`: number of flat packs; 0: each
  // tensor is reduced separately.
  void all_reduce(int replica, const std::vector<at::Tensor>& tensors, int num_packs);

 private:
  std::vector<Communicator> communicators_;  // by replica
};

// Throws UsageError, with a message that begins with `what`, if a replica is on the CPU, whose memory NCCL
// does not support.
void require_cuda_devices(const std::vector<c10::Device>& devices, const std::string& what);

// Throws UsageError, with a message that begins with `what`, if the job's processes do not use engine nccl.
void require_nccl(const Context& context, const std::string& what);

}  // namespace rondo
