#pragma once

#include <functional>
#include <thread>
#include <utility>

// Ranks of one job or of several jobs may be threads of one process. Each such rank is a replica with its own
// number. The number selects the log prefix of its threads (log.h) and the account of the memory that they
// allocate (rondo/memory). Threads that set no number have number 0, which is enough for a process with one
// rank.
namespace rondo {

// Returns the replica number of the calling thread.
int this_replica() noexcept;

// Returns the number of the rank that the calling thread works for. Differs from this_replica() only in a
// rank with several replicas.
int replica_of_this_rank() noexcept;

// A replica number that is reserved for the lifetime of the object: the lowest free one. Thread-safe.
class Replica {
 public:
  Replica();
  // Creates one of several replicas of the rank with number `rank`.
  explicit Replica(int rank);
  // Resets the calling thread to number 0 if it uses this number.
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  int number() const { return number_; }
  // Sets the calling thread's number to this one.
  void enter() const;

 private:
  int number_;
  int rank_;
};

// Makes threads that replica_thread() starts from the calling thread call `setup` before their body. Threads
// that those threads start inherit it. Replaces the previous function; an empty function disables it.
// Thread-safe.
void set_thread_setup(std::function<void()> setup);

namespace detail {
void enter_replica(int number, int rank) noexcept;
std::function<void()> thread_setup();
}  // namespace detail

// The replica and rank numbers of the thread that creates the object. For threads that work for that thread
// but were not started by it, such as autograd's backward threads of a device.
class ReplicaIdentity {
 public:
  ReplicaIdentity() : replica_(this_replica()), rank_(replica_of_this_rank()) {}
  // Sets the calling thread's numbers to these.
  void enter() const { detail::enter_replica(replica_, rank_); }

 private:
  int replica_;
  int rank_;
};

// Starts a thread with the calling thread's numbers; it runs the set_thread_setup() function before `body`.
template <class Body>
std::thread replica_thread(Body body) {
  return std::thread([number = this_replica(), rank = replica_of_this_rank(), setup = detail::thread_setup(),
                      body = std::move(body)]() mutable {
    detail::enter_replica(number, rank);
    set_thread_setup(setup);
    if (setup) setup();
    body();
  });
}

}  // namespace rondo
