#include "rondo/channel/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace rondo {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free,
              "a futex is a plain 32-bit word");

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout) {
  const auto bounded = std::clamp<Duration>(timeout, Duration::zero(), std::chrono::hours(1));
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(bounded);
  timespec relative{};
  relative.tv_sec = whole.count();
  relative.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(bounded - whole).count();
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace rondo
