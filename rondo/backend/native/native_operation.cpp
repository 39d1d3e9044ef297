#include "rondo/backend/native/native_operation.h"

#include <ATen/core/jit_type.h>
#include <c10/util/ParallelGuard.h>

#include <optional>
#include <utility>

namespace rondo {

NativeOperation::NativeOperation(Memory&& memory)
    : memory_(std::move(memory)), started_on_(std::this_thread::get_id()) {}

void NativeOperation::finish(const std::exception_ptr& error) noexcept {
  error_ = error;
  if (!error) {
    try {
      // The engine's helper thread copies alone, without a team of threads of its own.
      std::optional<c10::ParallelGuard> alone;
      if (std::this_thread::get_id() != started_on_) alone.emplace(true);
      memory_.copy_back();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  over_.store(true, std::memory_order_release);
}

void NativeOperation::announce() noexcept {
  Forgotten forgotten;  // freed without the lock
  Future future;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !std::exchange(announced_, true);
    future = future_;
    if (first && !future) settle(forgotten);
  }
  if (!first) {
    // Another thread is about to complete it, or has; its callbacks may take longer.
    if (future) future->wait();
    return;
  }
  if (!error_) {
    memory_.alive.clear();
    memory_.copied_back.clear();
  }
  if (!future) return;
  complete(future);
  const std::lock_guard lock(mutex_);
  settle(forgotten);
}

// Requires the lock, as take_forgotten().
void NativeOperation::settle(Forgotten& forgotten) {
  settled_ = true;
  take_forgotten(forgotten);
}

// After a failure peers may still write to the results: who keeps the operation decides then.
void NativeOperation::take_forgotten(Forgotten& forgotten) {
  if (!settled_ || !forgotten_ || error_) return;
  forgotten.results = std::move(memory_.results);
  forgotten.future = std::move(future_);
}

void NativeOperation::forget_results() noexcept {
  Forgotten forgotten;  // freed without the lock
  const std::lock_guard lock(mutex_);
  forgotten_ = true;
  take_forgotten(forgotten);
}

void NativeOperation::complete(const Future& future) const {
  if (error_) {
    future->setError(error_);
  } else {
    future->markCompleted(memory_.value_of_future());
  }
}

c10::intrusive_ptr<c10::ivalue::Future> NativeOperation::future() {
  Future made;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (!announced_) return future_;
    made = future_;
  }
  complete(made);
  return made;
}

}  // namespace rondo
