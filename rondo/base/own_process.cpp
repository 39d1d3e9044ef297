#include "rondo/base/own_process.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace rondo {
namespace {

// Forks between the first OwnProcess and this process.
std::atomic<std::uint64_t> forks{0};

void count_fork() { forks.fetch_add(1); }

void count_forks_from_now_on() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, &count_fork); });
}

}  // namespace

OwnProcess::OwnProcess() {
  count_forks_from_now_on();
  forks_ = forks.load();
}

bool OwnProcess::is_current() const noexcept { return forks.load(std::memory_order_relaxed) == forks_; }

}  // namespace rondo
