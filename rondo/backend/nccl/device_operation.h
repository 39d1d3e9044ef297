#pragma once

#include <c10/core/Event.h>

#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "rondo/base/time.h"

namespace rondo {

// An operation between accelerators, from its start until the devices are through with it. It keeps no
// tensors. Any thread.
class DeviceOperation {
 public:
  // `number` counts the operations of the group from 1; `peers` are the ranks of a message, empty for a
  // collective.
  DeviceOperation(std::string name, std::uint64_t number, std::vector<int> peers, Duration timeout)
      : name(std::move(name)), number(number), peers(std::move(peers)), deadline(Deadline::after(timeout)) {}

  // The engine has started it.
  void set_work(const c10::intrusive_ptr<c10d::Work>& work);
  // The engine has refused it.
  void cancel();
  // A stream of `device`, the calling thread's current one, now waits for it.
  void note_wait(c10::Device device);

  // Whether it has ended. One that nobody waits for counts as ended once its Work is gone.
  bool has_ended();
  // Whether wait() has returned.
  bool is_awaited();

  const std::string name;
  const std::uint64_t number;
  const std::vector<int> peers;
  const Deadline deadline;
  const TimePoint started = Clock::now();

 private:
  std::mutex mutex_;  // protects what follows
  bool is_cancelled_ = false;
  std::optional<c10::weak_intrusive_ptr<c10d::Work>> work_;  // empty: it is being started
  std::optional<c10::Event> event_;                          // in the stream that waits for it
};

}  // namespace rondo
