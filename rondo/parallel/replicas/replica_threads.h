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

// The threads of several replicas in one process. They live as long as the object: replica 0 is the thread
// that calls run(), the others wait for work, first spinning, then asleep, since a step of a small model
// takes less time than starting a thread. Each replica has a number of its own for tracked memory and log
// lines (rondo/base/replica.h). One thread uses an object.
class ReplicaThreads {
 public:
  // Every replica computes with an equal share of libtorch's intra-op threads (at::get_num_threads(), at
  // least one), set for the calling thread, too. `replicas` is one or more.
  explicit ReplicaThreads(int replicas);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  int size() const { return replicas_; }

  // Calls body(replica) for each replica at a time, each in its thread, and returns when all have ended. When
  // some throw, the exception of the lowest replica is thrown on, of the same type for rondo's own, with the
  // replica's number in its message. Throws UsageError within a run().
  void run(const std::function<void(int replica)>& body);
  // Calls `body` in the thread of one replica.
  void run_on(int replica, const std::function<void()>& body);
  // The same; the thread has the replica's device from then on. Replica 0 computes in the caller's thread,
  // which keeps the device that it has for other things where the replica is on the CPU.
  void run_on(int replica, c10::Device device, const std::function<void()>& body);
  // Within run(): returns when all replicas have called it; what they wrote before is seen by all. Throws
  // CancelledError when a replica has thrown.
  void meet();

  // The replica that the calling thread computes; 0 outside of run().
  int current() const;
  // Where the memory that a replica takes is tracked.
  MemoryTracker& memory(int replica) const { return *trackers_[static_cast<std::size_t>(replica)]; }
  // The largest memory of each so far, where the process tracks it.
  std::vector<std::uint64_t> peak_bytes() const;

 private:
  void work(int replica);
  void run_one(int replica);
  // Waits until `word` is another than `value`.
  void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value);
  void change(std::atomic<std::uint32_t>& word);
  void rethrow_first();

  int replicas_;
  int torch_threads_;
  int spins_;
  const std::function<void(int)>* body_ = nullptr;  // of the run() that is under way
  std::vector<std::exception_ptr> errors_;          // by replica
  std::vector<MemoryTracker*> trackers_;
  bool ends_ = false;

  // Words that threads wait on. Each has a cache line of its own.
  alignas(64) std::atomic<std::uint32_t> job_ = 0;       // changes with every run()
  alignas(64) std::atomic<std::uint32_t> done_ = 0;      // changes when all others have ended
  alignas(64) std::atomic<std::uint32_t> meeting_ = 0;   // changes when all have met
  alignas(64) std::atomic<std::uint32_t> arrived_ = 0;   // replicas at the meeting
  alignas(64) std::atomic<std::uint32_t> at_work_ = 0;   // other replicas that have not ended
  alignas(64) std::atomic<std::uint32_t> sleepers_ = 0;  // threads that sleep on a word
  std::atomic<bool> failed_ = false;

  std::vector<std::thread> threads_;
};

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
