#include "rondo/channel/peer_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

PeerWatch::~PeerWatch() {
  for (const Peer& peer : peers_) {
    if (peer.descriptor >= 0) close(peer.descriptor);
  }
}

void PeerWatch::add(int rank, pid_t pid) {
  if (pid == getpid()) return;
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  // EINVAL: the process is being taken off the list of processes at this moment.
  if (descriptor < 0 && errno != ESRCH && errno != EINVAL) {
    throw Error(str("cannot watch process ", pid, " of rank ", rank, " (pidfd_open): ", errno_text(errno),
                    "; Linux 5.3 or later is needed"));
  }
  peers_.push_back({rank, pid, descriptor});
}

std::vector<int> PeerWatch::ended(Duration patience) const {
  std::vector<pollfd> polled;
  polled.reserve(peers_.size());
  bool gone_before = false;
  for (const Peer& peer : peers_) {
    polled.push_back({peer.descriptor, POLLIN, 0});
    gone_before = gone_before || peer.descriptor < 0;
  }
  const Deadline deadline = Deadline::after(gone_before ? Duration::zero() : patience);
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    if (poll(polled.data(), polled.size(), static_cast<int>(std::max<long long>(left.count(), 0))) >= 0)
      break;
  } while (errno == EINTR && !deadline.passed());
  std::vector<int> ranks;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].descriptor < 0 || polled[i].revents != 0) ranks.push_back(peers_[i].rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> PeerWatch::stopped() const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_) {
    std::ifstream file(str("/proc/", peer.pid, "/stat"));
    std::string line;
    std::getline(file, line);
    // "pid (name) state ..."; the name may hold anything, so look for its end from the back.
    const std::size_t name_end = line.rfind(") ");
    if (name_end != std::string::npos && line[name_end + 2] == 'T') ranks.push_back(peer.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace rondo
