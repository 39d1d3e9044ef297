#pragma once

#include <functional>
#include <thread>
#include <utility>

// Ranks of a job may be threads of one process, and so may several jobs. Each such rank is a replica with a
// number of its own: what its threads write to the log stands under its prefix (log.h), and memory that they
// take counts for it (rondo/memory). Number 0 has every thread that says nothing: a process with one rank
// needs none of this.
namespace rondo {

// The number under which the calling thread works.
int this_replica() noexcept;

// The number of the rank for which the calling thread works: this_replica(), but in the threads of a rank
// with several replicas the one of that rank.
int replica_of_this_rank() noexcept;

// A number for as long as the object lives: the lowest that no other one has. Any thread.
class Replica {
 public:
  Replica();
  // One of several replicas of the rank with number `rank`.
  explicit Replica(int rank);
  // The calling thread goes back to number 0 if it works under this one.
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  int number() const { return number_; }
  // The calling thread works under this number from here on.
  void enter() const;

 private:
  int number_;
  int rank_;
};

// Has the threads that replica_thread() starts from the calling one call `setup` before their body, and so
// the threads that those start. Replaces the function given before; an empty one ends it. Any thread.
void set_thread_setup(std::function<void()> setup);

namespace detail {
void enter_replica(int number, int rank) noexcept;
std::function<void()> thread_setup();
}  // namespace detail

// The numbers of the thread that makes the object, for threads that work for that thread and were not started
// by it: those on which autograd computes the backward pass of a device.
class NumbersOfThread {
 public:
  NumbersOfThread() : replica_(this_replica()), rank_(replica_of_this_rank()) {}
  // The calling thread works under them from here on.
  void enter() const { detail::enter_replica(replica_, rank_); }

 private:
  int replica_;
  int rank_;
};

// Starts a thread that works under the numbers of the calling thread, after its set_thread_setup().
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
