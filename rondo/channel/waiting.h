#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "rondo/base/time.h"

// What waits in shared memory have in common: they spin, then yield, then sleep on a futex.
namespace rondo {

// How long a waiter yields the processor between spinning and sleeping, and how long it then sleeps at most
// before it looks whether its peers still live.
inline constexpr auto kYieldTime = std::chrono::milliseconds(2);
inline constexpr auto kSleepTime = std::chrono::milliseconds(20);
inline constexpr auto kPeerCheckInterval = std::chrono::milliseconds(5);

// Tells the processor that this is a loop that waits.
inline void relax_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sleeps while `word` holds `expected`, at most for `timeout`; may also return for no reason. Works between
// processes when the word lies in shared memory.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);

// Wakes everyone who sleeps on `word`.
void futex_wake_all(std::atomic<std::uint32_t>& word);

// Tells which of some processes of this host have ended, killed ones and zombies included, without signals
// and without their help (pidfd). Threads of this process never count as ended. One thread at a time.
class PeerWatch {
 public:
  PeerWatch() = default;
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();

  // `pid` must be alive, or have been a moment ago: a pid that is gone already counts as ended.
  void add(int rank, pid_t pid);
  // Ranks whose process has ended, ascending. One system call.
  std::vector<int> ended() const { return ended(Duration::zero()); }
  // The same, but while none has ended this call waits up to `patience` for one. A process that is ending
  // closes its files before it counts as ended: whoever finds them closed asks in this way.
  std::vector<int> ended(Duration patience) const;
  // Ranks whose process is stopped by a signal (SIGSTOP, Ctrl-Z); one that a debugger holds does not count. A
  // few system calls a process.
  std::vector<int> stopped() const;

 private:
  struct Peer {
    int rank;
    pid_t pid;
    int descriptor;  // pidfd; -1 when the process was gone at add()
  };
  std::vector<Peer> peers_;
};

}  // namespace rondo
