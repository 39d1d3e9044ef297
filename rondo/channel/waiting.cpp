#include "rondo/channel/waiting.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

#include "rondo/base/error.h"
#include "rondo/base/process_status.h"
#include "rondo/base/text.h"

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

PeerWatch::~PeerWatch() {
  for (const Peer& peer : peers_) {
    if (peer.descriptor >= 0) close(peer.descriptor);
  }
}

void PeerWatch::add(int rank, pid_t pid) {
  if (pid == getpid()) return;
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  // EINVAL: the kernel is removing the process at this moment.
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
    const auto status = ProcessStatus::read(peer.pid);
    if (status && status->state() == 'T') ranks.push_back(peer.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace rondo
