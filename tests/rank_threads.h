#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rondo::tests {

// Calls `body` with every rank below `ranks`, each on a thread of its own; throws on what was thrown first,
// after all threads have ended.
inline void run_rank_threads(int ranks, const std::function<void(int rank)>& body) {
  std::mutex mutex;  // protects first
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace rondo::tests
