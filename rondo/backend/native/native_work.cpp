#include "rondo/backend/native/native_work.h"

#include "rondo/backend/native/finished_future.h"

namespace rondo {

NativeWork::NativeWork(std::shared_ptr<shared_memory::Engine> engine, c10d::OpType type, Pending pending)
    : c10d::Work(engine->rank(), type), engine_(std::move(engine)), pending_(std::move(pending)) {}

bool NativeWork::engine_done() {
  if (pending_.sequence) return engine_->completed(*pending_.sequence);
  if (pending_.message == nullptr) return true;
  return engine_->completed(*pending_.message);
}

// Called with work_mutex_ held.
void NativeWork::conclude() {
  done_ = true;
  if (pending_.finish) pending_.finish();
  pending_.finish = nullptr;
  pending_.alive.clear();
}

bool NativeWork::isCompleted() {
  const std::lock_guard lock(work_mutex_);
  if (done_ || error_) return true;
  try {
    if (!engine_done()) return false;
    conclude();
  } catch (...) {
    error_ = std::current_exception();
  }
  return true;
}

bool NativeWork::isSuccess() const {
  const std::lock_guard lock(work_mutex_);
  return done_ && !error_;
}

std::exception_ptr NativeWork::exception() const {
  const std::lock_guard lock(work_mutex_);
  return error_;
}

bool NativeWork::wait(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(work_mutex_);
  if (error_) std::rethrow_exception(error_);
  if (done_) return true;
  const Wait limits{Deadline::after(timeout == kNoTimeout ? pending_.timeout : Duration(timeout)), nullptr};
  try {
    if (pending_.sequence) {
      engine_->wait(*pending_.sequence, limits);
    } else if (pending_.message != nullptr) {
      engine_->wait(*pending_.message, limits, pending_.is_send);
    }
    conclude();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  return true;
}

void NativeWork::abort() { engine_->abort("the operation was aborted by its caller"); }

std::vector<at::Tensor> NativeWork::result() { return pending_.results; }

c10::intrusive_ptr<c10::ivalue::Future> NativeWork::getFuture() { return finished_future(*this); }

}  // namespace rondo
