#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rondo/base/time.h"

namespace rondo::hierarchical {

// The monitored barrier of a group over several hosts: ranks synchronize through the group's store, so that a
// rank that does not arrive breaks no connection and the group remains usable. Any thread.
class StoreBarrier {
 public:
  // `store` is private to the barrier; `group` is the group's name, for messages.
  StoreBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string group);

  // Blocks until all ranks have called it as often as this one. Rank 0 throws TimeoutError naming the first
  // rank that has not arrived within `timeout`, or with `name_all_missing` all of them; the others then throw
  // TimeoutError too. Rank 0, whose process may hold the store, returns once the others have passed.
  void wait(Duration timeout, bool name_all_missing);

 private:
  void let_the_others_pass(const std::string& prefix, Duration timeout, bool name_all_missing);
  void wait_to_pass(const std::string& prefix, Duration timeout);

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const std::string group_;
  std::mutex mutex_;  // held by a call of wait(); protects calls_
  std::uint64_t calls_ = 0;
};

}  // namespace rondo::hierarchical
