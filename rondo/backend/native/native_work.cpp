#include "rondo/backend/native/native_work.h"

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
      // The engine's helper thread copies alone, without starting OpenMP threads.
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
    // Another thread completes the future; wait() may return before its callbacks end.
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

// Requires the lock, as take_forgotten() does.
void NativeOperation::settle(Forgotten& forgotten) {
  settled_ = true;
  take_forgotten(forgotten);
}

// After a failure peers may still write to the results, so they are kept until the operation is destroyed.
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

NativeWork::NativeWork(std::shared_ptr<shared_memory::Engine> engine, c10d::OpType type, Pending pending)
    : c10d::Work(engine->rank(), type), engine_(std::move(engine)), pending_(std::move(pending)) {}

NativeWork::~NativeWork() {
  // If this is the last reference, the results are released anyway.
  if (pending_.operation.use_count() > 1) pending_.operation->forget_results();
}

bool NativeWork::isCompleted() {
  if (!pending_.operation->over()) {
    try {
      engine_->progress();
    } catch (const std::exception&) {
      // The error has also ended this operation, which reports it.
    }
  }
  return pending_.operation->over();
}

bool NativeWork::isSuccess() const { return pending_.operation->over() && !pending_.operation->error(); }

bool NativeWork::wait(std::chrono::milliseconds timeout) {
  NativeOperation& operation = *pending_.operation;
  if (pending_.schedules != nullptr) {
    const bool own = timeout == kNoTimeout;  // the timeout given at the start
    pending_.schedules->wait(pending_.scheduled, own ? Deadline::never() : Deadline::after(timeout));
  } else if (!operation.over()) {
    const Duration limit = timeout == kNoTimeout ? pending_.timeout : bounded_duration(timeout);
    const Wait limits{Deadline::after(limit), nullptr};
    try {
      if (pending_.sequence) {
        engine_->wait(*pending_.sequence, limits);
      } else {
        engine_->wait(*pending_.message, limits);
      }
    } catch (const std::exception&) {
      if (!operation.over()) throw;
    }
  }
  // After wait() the future is complete.
  operation.announce();
  if (const std::exception_ptr error = operation.error()) std::rethrow_exception(error);
  return true;
}

void NativeWork::abort() {
  constexpr const char* kReason = "the operation was aborted by its caller";
  engine_->abort(kReason);
  if (pending_.schedules != nullptr) pending_.schedules->abort(kReason);
}

int NativeWork::sourceRank() const {
  const auto& message = pending_.message;
  if (message == nullptr || message->is_send || !pending_.operation->over()) return -1;
  return message->peer;
}

c10::intrusive_ptr<c10::ivalue::Future> NativeWork::getFuture() {
  if (pending_.message != nullptr && !pending_.operation->over())
    engine_->limit(pending_.message, Deadline::after(pending_.timeout));
  return pending_.operation->future();
}

}  // namespace rondo
