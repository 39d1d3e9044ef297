#include "rondo/base/replica.h"

#include <mutex>
#include <set>

namespace rondo {
namespace {

thread_local int replica_of_thread = 0;
thread_local int rank_of_thread = 0;  // number of the replica of the thread's rank
thread_local std::function<void()> setup_of_threads;

// Replica numbers in use in this process.
struct ReplicaNumbers {
  std::mutex mutex;  // protects taken
  std::set<int> taken;
};

// Never destroyed: a Context may live until the process exits.
ReplicaNumbers& replica_numbers() {
  static auto* const numbers = new ReplicaNumbers();
  return *numbers;
}

int take_lowest_number() {
  ReplicaNumbers& numbers = replica_numbers();
  const std::lock_guard lock(numbers.mutex);
  int number = 0;
  while (numbers.taken.contains(number)) ++number;
  numbers.taken.insert(number);
  return number;
}

}  // namespace

void set_thread_setup(std::function<void()> setup) { setup_of_threads = std::move(setup); }

std::function<void()> detail::thread_setup() { return setup_of_threads; }

int this_replica() noexcept { return replica_of_thread; }

int replica_of_this_rank() noexcept { return rank_of_thread; }

void detail::enter_replica(int number, int rank) noexcept {
  replica_of_thread = number;
  rank_of_thread = rank;
}

Replica::Replica() : number_(take_lowest_number()), rank_(number_) {}

Replica::Replica(int rank) : number_(take_lowest_number()), rank_(rank) {}

Replica::~Replica() {
  if (replica_of_thread == number_) detail::enter_replica(0, 0);
  ReplicaNumbers& numbers = replica_numbers();
  const std::lock_guard lock(numbers.mutex);
  numbers.taken.erase(number_);
}

void Replica::enter() const { detail::enter_replica(number_, rank_); }

}  // namespace rondo
