#pragma once

#include <deque>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rondo::shared_memory {

// The owner of an operation: keeps the buffers alive and is notified of the end. The engine holds it from the
// start until the operation has ended on this rank, whether it completed, failed, was aborted, or the group
// was destroyed; the caller that started the operation may drop its reference.
//
// After an error the owner keeps the buffers during its lifetime: a peer that was stopped inside of them may
// be continued, and the engine holds the owner as long as that is possible.
class OperationOwner {
 public:
  virtual ~OperationOwner() = default;
  // Called when the operation has ended. If there was no error, no peer accesses its buffers any more. Called
  // once, by the thread that ended it, with the engine locked: may copy results, but must neither call the
  // engine nor release anything whose release may wait for other threads.
  virtual void finish(const std::exception_ptr& error) noexcept = 0;
  // Called once, soon after finish(), without a lock: runs callbacks. May call the engine, and wait for other
  // operations.
  virtual void announce() noexcept = 0;
};

// Owners of ended operations, for the threads that announce to them. Outlives the engine while a thread uses
// it. Any thread.
class Announcements {
 public:
  explicit Announcements(std::vector<std::shared_ptr<OperationOwner>> owners)
      : owners_(std::make_move_iterator(owners.begin()), std::make_move_iterator(owners.end())) {}

  // Removes and returns the next owner to announce to, or null if there are none left.
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
