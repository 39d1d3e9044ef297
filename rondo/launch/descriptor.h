#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "rondo/base/time.h"

namespace rondo::launch {

// Owns a file descriptor. Move-only.
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
  // Gives it up: the caller closes it.
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

// A pipe that programs started later do not inherit. Throws Error.
Pipe make_pipe();

// Opens /dev/null as standard input, output or error where this program was started without one, so that no
// pipe takes that number.
void ensure_standard_streams();

// Makes reads of `descriptor` return at once when there is nothing.
void set_nonblocking(int descriptor);

// Calls back when descriptors become ready (epoll). Callbacks run in the order in which the descriptors
// became ready, so of two workers that died between two rounds the first is seen first. One thread.
class EventLoop {
 public:
  using Callback = std::function<void()>;

  EventLoop();
  // Watches `descriptor` for input, or for room to write. Returns false when the kernel cannot watch it (a
  // regular file, which is always ready). A callback may add and remove descriptors, itself included.
  bool watch_input(int descriptor, Callback callback);
  bool watch_output(int descriptor, Callback callback);
  void forget(int descriptor);
  // Handles what is ready, waiting for the first event until `deadline`.
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
