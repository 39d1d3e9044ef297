#pragma once

#include <atomic>
#include <memory>

#include "rondo/base/time.h"

namespace rondo {

// A cancellation flag shared between waiting threads and the threads that may stop the wait. Copies share the
// flag. A default-constructed token can be cancelled too. Thread-safe.
class CancelToken {
 public:
  // Creates a new flag that is not cancelled.
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  // Cancels all current and future waits that use this token.
  void cancel() const { flag_->store(true, std::memory_order_release); }
  // Returns whether cancel() was called.
  bool cancelled() const { return flag_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

// Limits of a blocking call.
struct Wait {
  Deadline deadline = Deadline::never();  // time after which the call throws TimeoutError
  const CancelToken* cancel = nullptr;    // not owned; may be null
};

}  // namespace rondo
