#pragma once

#include <atomic>
#include <cstdint>

namespace rondo {

// Forks between the first OwnProcess and this process; only the handler of forks writes it.
extern std::atomic<std::uint64_t> forks_since_own_process;

// The process in which the object was made, told from the children that are forked from it later. Threads and
// locked mutexes of the parent do not work there. Costs no system call.
class OwnProcess {
 public:
  OwnProcess();

  // False in a child that was forked after the object was made. Any thread.
  bool is_current() const noexcept {
    return forks_since_own_process.load(std::memory_order_relaxed) == forks_;
  }

 private:
  std::uint64_t forks_;
};

}  // namespace rondo
