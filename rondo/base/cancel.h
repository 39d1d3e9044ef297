#pragma once

#include <atomic>
#include <memory>

#include "rondo/base/time.h"

namespace rondo {

// A flag shared by whoever waits and whoever may stop the wait. Copies share the flag; a default-made token
// can be cancelled too. Any thread may call any method.
class CancelToken {
 public:
  // A flag of its own, not cancelled.
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  // Ends the waits that know this token, now and from now on.
  void cancel() const { flag_->store(true, std::memory_order_release); }
  // Whether cancel() was called.
  bool cancelled() const { return flag_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

// What bounds a blocking call.
struct Wait {
  Deadline deadline = Deadline::never();  // TimeoutError afterwards
  const CancelToken* cancel = nullptr;    // not owned; may be null
};

}  // namespace rondo
