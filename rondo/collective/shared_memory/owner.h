#pragma once

#include <exception>
#include <memory>

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

}  // namespace rondo::shared_memory
