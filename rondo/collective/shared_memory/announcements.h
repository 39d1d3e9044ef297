#pragma once

#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rondo/collective/shared_memory/owner.h"

namespace rondo::shared_memory {

// Owners of operations that have ended, for the threads that announce it to them. Outlives the engine where a
// thread is still at it. Any thread.
class Announcements {
 public:
  explicit Announcements(std::vector<std::shared_ptr<OperationOwner>> owners)
      : owners_(std::make_move_iterator(owners.begin()), std::make_move_iterator(owners.end())) {}

  // The next owner to announce to, who is then the caller's; null where there is none left.
  std::shared_ptr<OperationOwner> next() {
    const std::lock_guard lock(mutex_);
    if (owners_.empty()) return nullptr;
    std::shared_ptr<OperationOwner> owner = std::move(owners_.front());
    owners_.pop_front();
    return owner;
  }
  bool empty() {
    const std::lock_guard lock(mutex_);
    return owners_.empty();
  }

 private:
  std::mutex mutex_;  // protects owners_
  std::deque<std::shared_ptr<OperationOwner>> owners_;
};

}  // namespace rondo::shared_memory
