#include "rondo/base/own_process.h"

#include <pthread.h>

#include <mutex>

namespace rondo {

constinit std::atomic<std::uint64_t> forks_since_own_process{0};

namespace {

void count_fork() { forks_since_own_process.fetch_add(1); }

void count_forks_from_now_on() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, &count_fork); });
}

}  // namespace

OwnProcess::OwnProcess() {
  count_forks_from_now_on();
  forks_ = forks_since_own_process.load();
}

}  // namespace rondo
