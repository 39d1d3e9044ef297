#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "rondo/base/time.h"

namespace rondo::server {

// What a function that was scheduled will have returned. A copy is the same value. Any thread.
class RemoteValue {
 public:
  // Waits. Throws the error that the function, or another one of the same coordinator, ended with, or
  // CancelledError when that one cancelled this; TimeoutError at the deadline.
  std::string fetch(const Deadline& deadline = Deadline::never()) const;
  bool is_ready() const;  // fetch() would not wait

 private:
  friend class Coordinator;
  struct State;
  explicit RemoteValue(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Options of a Coordinator.
struct CoordinatorOptions {
  std::string address = "127.0.0.1:0";          // where it listens
  std::size_t longest_queue = 256 * 1024;       // functions that wait
  Duration silence = std::chrono::seconds(30);  // a worker of another host that is silent so long is lost
  // Whether all workers have ended for good: then what waits fails. Empty: they may come at any time.
  std::function<bool()> workers_have_ended = {};
};

// Hands functions out to workers, one at a time to each: TensorFlow's ClusterCoordinator. A function is known
// by name on every worker; arguments and results are bytes.
//   - At least once: when a worker is lost, what it was doing is given to another one, though it may have had
//     effects. A function must bear being called twice, and in any order with others. A worker of another
//     host is silent while a function runs: one that takes longer than `silence` may be given to a second
//     worker, and the first that is done counts.
//   - The first error of a function cancels everything that waits, and is thrown once: by the next
//     schedule() or join(). Then the coordinator goes on.
//   - schedule() waits while the queue is full.
// Any thread may call any method.
class Coordinator {
 public:
  // `secret` is 64 hexadecimal digits that only the processes of the job know (openssl rand -hex 32). Throws
  // UsageError for another text and CommunicationError naming the address where it cannot listen.
  explicit Coordinator(const std::string& secret, const CoordinatorOptions& options = {});
  // Cancels what was not done, and tells workers to end, those that are in a function when it has returned;
  // for that it waits `silence` at most.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& address() const;  // "host:port" where it listens
  // Queues a call of the function of that name. Throws an error of an earlier function, once.
  RemoteValue schedule(const std::string& function, std::string arguments);
  // Waits until everything that was scheduled is done. Throws an error of a function, once.
  void join();
  bool done() const;  // join() would not wait
  // Workers that were lost so far.
  std::uint64_t lost_workers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Functions that a worker has, by name: bytes in, bytes out. What one throws becomes the coordinator's error.
using RemoteFunctions = std::map<std::string, std::function<std::string(const std::string& arguments)>>;

// Calls what the coordinator at `address` schedules, until it ends. `worker` numbers the process, from 0. An
// input pipeline of its own is whatever the functions keep: they are called on this thread only. Throws
// CommunicationError when the coordinator is not there or has another secret, and UsageError for a secret
// that is none.
void work_for_coordinator(const std::string& address, const std::string& secret, int worker,
                          const RemoteFunctions& functions, Duration timeout = std::chrono::minutes(5));

}  // namespace rondo::server
