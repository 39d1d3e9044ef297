#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "rondo/base/time.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

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
