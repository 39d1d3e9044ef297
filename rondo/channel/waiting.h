#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "rondo/base/time.h"

// Common parts of waits in shared memory, which spin, then yield, then sleep on a futex.
namespace rondo {

// Time that a waiter yields the processor between spinning and sleeping, longest sleep, and interval between
// its checks that the peers are alive.
inline constexpr auto kYieldTime = std::chrono::milliseconds(2);
inline constexpr auto kSleepTime = std::chrono::milliseconds(20);
inline constexpr auto kPeerCheckInterval = std::chrono::milliseconds(5);

// Hints to the processor that this is a spin loop.
inline void relax_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sleeps while `word` holds `expected`, at most for `timeout`; may also return spuriously. Works between
// processes if the word is in shared memory.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);

// Wakes all threads that sleep on `word`.
void futex_wake_all(std::atomic<std::uint32_t>& word);

// A watch that reports which processes of this host have ended, including killed ones and zombies, without
// signals and without their help (pidfd). Threads of this process never count as ended. One thread at a time.
class PeerWatch {
 public:
  PeerWatch() = default;
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();

  // Adds a process. `pid` must be alive, or have been a moment ago: a process that no longer exists counts as
  // ended.
  void add(int rank, pid_t pid);
  // Returns the ranks whose process has ended, ascending. One system call.
  std::vector<int> ended() const { return ended(Duration::zero()); }
  // As ended(), but waits up to `patience` while none has ended. An ending process closes its files before it
  // counts as ended: callers that find a file closed use this overload.
  std::vector<int> ended(Duration patience) const;
  // Returns the ranks whose process is stopped by a signal (SIGSTOP, Ctrl-Z), excluding processes held by a
  // debugger. A few system calls per process.
  std::vector<int> stopped() const;

 private:
  struct Peer {
    int rank;
    pid_t pid;
    int descriptor;  // pidfd; -1 if the process had ended at add()
  };
  std::vector<Peer> peers_;
};

}  // namespace rondo
