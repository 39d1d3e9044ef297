#pragma once

#include <thread>
#include <utility>

// Ranks of a job may be threads of one process, and so may several jobs. Each such rank is a replica with a
// number of its own: what its threads write to the log stands under its prefix (log.h), and memory that they
// take counts for it (rondo/memory). Number 0 has every thread that says nothing: a process with one rank
// needs none of this.
namespace rondo {

// The number under which the calling thread works.
int this_replica() noexcept;

// A number for as long as the object lives: the lowest that no other one has. Any thread.
class Replica {
 public:
  Replica();
  // The calling thread goes back to number 0 if it works under this one.
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  int number() const { return number_; }
  // The calling thread works under this number from here on.
  void enter() const;

 private:
  int number_;
};

namespace detail {
void enter_replica(int number) noexcept;
}

// A thread that works under the number of the thread that starts it.
template <class Body>
std::thread replica_thread(Body body) {
  return std::thread([number = this_replica(), body = std::move(body)]() mutable {
    detail::enter_replica(number);
    body();
  });
}

}  // namespace rondo
