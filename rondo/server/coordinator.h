#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "rondo/base/time.h"
#include "rondo/control/secret.h"

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

struct CoordinatorOptions {
  std::string address = "127.0.0.1:0";          // where it listens
  std::size_t longest_queue = 256 * 1024;       // functions that wait
  Duration silence = std::chrono::seconds(30);  // a worker of another host that is silent so long is lost
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
  explicit Coordinator(const control::JobSecret& secret, const CoordinatorOptions& options = {});
  // Workers are told to end; what was not done is cancelled.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& address() const;
  RemoteValue schedule(const std::string& function, std::string arguments);
  // Waits until everything that was scheduled is done.
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
// CommunicationError when the coordinator is not there or has another secret.
void work_for_coordinator(const std::string& address, const control::JobSecret& secret, int worker,
                          const RemoteFunctions& functions, Duration timeout = std::chrono::minutes(5));

}  // namespace rondo::server
