#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "rondo/base/time.h"

namespace rondo::launch {

// Owner of a file descriptor. Move-only.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { reset(); }

  int number() const { return number_; }
  // Releases ownership: the caller must close the descriptor.
  int release() { return std::exchange(number_, -1); }
  bool valid() const { return number_ >= 0; }
  void reset() {
    if (number_ >= 0) close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};

// Creates a pipe that programs started later do not inherit. Throws Error.
Pipe make_pipe();

// Opens /dev/null for each of standard input, output and error that is closed, so that no pipe gets its
// number.
void ensure_standard_streams();

// Makes reads of `descriptor` return immediately if there is no data.
void set_nonblocking(int descriptor);

// An epoll event loop that calls back when descriptors become ready. Callbacks run in the order of readiness:
// if two workers die between two rounds, the first one is reported first. Single-threaded.
class EventLoop {
 public:
  using Callback = std::function<void()>;

  EventLoop();
  // Watches `descriptor` for input or for space to write. Returns false if epoll does not support it (a
  // regular file, which is always ready). A callback may add and remove descriptors, including its own.
  bool watch_input(int descriptor, Callback callback);
  bool watch_output(int descriptor, Callback callback);
  void forget(int descriptor);
  // Waits for the first event until `deadline` and handles all ready descriptors.
  void run_once(Deadline deadline);

 private:
  bool watch(int descriptor, std::uint32_t events, Callback callback);
  Descriptor epoll_;
  struct Watched {
    std::uint32_t generation;
    Callback callback;
  };
  std::unordered_map<int, Watched> watched_;
  std::uint32_t generations_ = 0;
};

}  // namespace rondo::launch
