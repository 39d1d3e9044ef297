#pragma once

#include <sys/types.h>

#include <vector>

#include "rondo/base/time.h"

namespace rondo {

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
