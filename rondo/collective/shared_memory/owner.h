#pragma once

#include <deque>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rondo::shared_memory {

// Whoever has started an operation, as the engine sees it: it keeps the buffers alive and learns how the
// operation ended. The engine holds it from the start until the operation has ended on this rank, whether it
// completed, failed, was aborted, or the group went away; whoever started it may forget it.
//
// After an error it keeps the buffers as long as it lives: a peer that was stopped inside of them may be
// continued, and the engine holds the owner until that cannot be.
class OperationOwner {
 public:
  virtual ~OperationOwner() = default;
  // The operation has ended; without an error no peer touches its buffers any more. Called once, by the
  // thread that made it end, with the engine locked: it may copy results to where they are wanted, but
  // neither call the engine nor release anything whose release may wait for other threads.
  virtual void finish(const std::exception_ptr& error) noexcept = 0;
  // Called once after finish(), soon, without a lock: runs what waits for the end. May call the engine, and
  // wait for other operations.
  virtual void announce() noexcept = 0;
};

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
