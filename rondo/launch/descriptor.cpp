#include "rondo/launch/descriptor.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "rondo/base/error.h"

namespace rondo::launch {

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot make a pipe: " + errno_text(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void ensure_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() returns the lowest free number, which is `stream`.
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDWR);
  }
}

void set_nonblocking(int descriptor) { fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK); }

namespace {

// Rounds up, so that the loop does not spin in the last millisecond before its deadline.
int timeout_ms(Deadline deadline) {
  if (deadline.is_never()) return -1;
  const double left = milliseconds(deadline.remaining());
  return static_cast<int>(std::min(left + 0.999, static_cast<double>(INT_MAX)));
}

std::uint64_t tag(int descriptor, std::uint32_t generation) {
  return static_cast<std::uint64_t>(generation) << 32 | static_cast<std::uint32_t>(descriptor);
}

}  // namespace

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.valid()) throw Error("cannot make an epoll descriptor: " + errno_text(errno));
}

bool EventLoop::watch(int descriptor, std::uint32_t events, Callback callback) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag(descriptor, ++generations_);
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    if (errno == EPERM) return false;
    throw Error("cannot watch a descriptor: " + errno_text(errno));
  }
  watched_[descriptor] = {generations_, std::move(callback)};
  return true;
}

bool EventLoop::watch_input(int descriptor, Callback callback) {
  return watch(descriptor, EPOLLIN, std::move(callback));
}

bool EventLoop::watch_output(int descriptor, Callback callback) {
  return watch(descriptor, EPOLLOUT, std::move(callback));
}

void EventLoop::forget(int descriptor) {
  if (watched_.erase(descriptor) > 0) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr);
}

void EventLoop::run_once(Deadline deadline) {
  std::array<epoll_event, 256> events;
  const int count = epoll_wait(epoll_.number(), events.data(), events.size(), timeout_ms(deadline));
  if (count < 0 && errno != EINTR) throw Error("cannot wait for events: " + errno_text(errno));
  for (int i = 0; i < count; ++i) {
    const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
    const auto found = watched_.find(static_cast<int>(key & 0xffffffffU));
    // An earlier callback may have removed this descriptor, and its number may already be in use again.
    if (found == watched_.end() || found->second.generation != key >> 32) continue;
    const Callback callback = found->second.callback;
    callback();
  }
}

}  // namespace rondo::launch
