#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "rondo/base/time.h"

namespace rondo::server {

// The future result of a scheduled function. Copies share the result. Thread-safe.
class RemoteValue {
 public:
  // Blocks until the result is ready and returns it. Throws the error of the function, CancelledError if the
  // error of another function cancelled it, and TimeoutError at the deadline.
  std::string fetch(const Deadline& deadline = Deadline::never()) const;
  bool is_ready() const;  // whether fetch() would not block

 private:
  friend class Coordinator;
  struct State;
  explicit RemoteValue(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Options of a Coordinator.
struct CoordinatorOptions {
  std::string address = "127.0.0.1:0";     // address to listen on
  std::size_t longest_queue = 256 * 1024;  // maximum number of queued functions
  // time after which a silent worker of another host counts as lost
  Duration silence = std::chrono::seconds(30);
  // Returns whether all workers have exited finally; queued functions then fail. Empty: workers may connect
  // at any time.
  std::function<bool()> workers_have_ended = {};
};

// A coordinator that distributes functions to workers, one at a time to each: TensorFlow's
// ClusterCoordinator. Every worker has the functions by name; arguments and results are bytes.
// - At-least-once execution: when a worker is lost, its function is given to another worker, although it may
//   have had effects. A function must tolerate being called twice and in any order with others. A worker of
//   another host is silent while a function runs. A function that takes longer than `silence` may be given to
//   a second worker, and the first result counts.
// - The first error of a function cancels everything that is queued or running. The next schedule() or join()
//   throws it, once. The coordinator can be used afterwards.
// - schedule() blocks while the queue is full.
// Thread-safe.
class Coordinator {
 public:
  // `secret` is 64 hexadecimal digits known only to the job's processes (openssl rand -hex 32). Throws
  // UsageError for other text, and CommunicationError naming the address if it cannot listen.
  explicit Coordinator(const std::string& secret, const CoordinatorOptions& options = {});
  // Cancels unfinished functions and tells workers to end; a worker inside a function ends when the function
  // returns. Waits at most `silence` for them.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& address() const;  // address it listens on, "host:port"
  // Queues a call of the named function. Throws the error of an earlier function, once.
  RemoteValue schedule(const std::string& function, std::string arguments);
  // Blocks until all scheduled functions are done. Throws the error of a function, once.
  void join();
  bool done() const;  // whether join() would not block
  // Returns the number of workers lost so far.
  std::uint64_t lost_workers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A worker's functions by name: bytes in, bytes out. An exception becomes the coordinator's error.
using RemoteFunctions = std::map<std::string, std::function<std::string(const std::string& arguments)>>;

// Runs the functions that the coordinator at `address` schedules, until it ends. `worker` is the number of
// the process, from 0. All functions are called on this thread, so they may keep state such as an input
// pipeline. Throws CommunicationError if the coordinator is unreachable or has another secret, and UsageError
// for an invalid secret.
void work_for_coordinator(const std::string& address, const std::string& secret, int worker,
                          const RemoteFunctions& functions, Duration timeout = std::chrono::minutes(5));

}  // namespace rondo::server
