#include "rondo/backend/native/native_work.h"

namespace rondo {

NativeWork::NativeWork(std::shared_ptr<shared_memory::Engine> engine, c10d::OpType type, Pending pending)
    : c10d::Work(engine->rank(), type), engine_(std::move(engine)), pending_(std::move(pending)) {}

NativeWork::~NativeWork() {
  // With the last reference the results go anyway.
  if (pending_.operation.use_count() > 1) pending_.operation->forget_results();
}

bool NativeWork::isCompleted() {
  if (!pending_.operation->over()) {
    try {
      engine_->progress();
    } catch (const std::exception&) {
      // It has ended this operation, too, which now has the error.
    }
  }
  return pending_.operation->over();
}

bool NativeWork::isSuccess() const { return pending_.operation->over() && !pending_.operation->error(); }

bool NativeWork::wait(std::chrono::milliseconds timeout) {
  NativeOperation& operation = *pending_.operation;
  if (pending_.plans != nullptr) {
    const bool own = timeout == kNoTimeout;  // the time that it was given when it was started
    pending_.plans->wait(pending_.planned, own ? Deadline::never() : Deadline::after(timeout));
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
  // Whoever has waited finds the future complete.
  operation.announce();
  if (const std::exception_ptr error = operation.error()) std::rethrow_exception(error);
  return true;
}

void NativeWork::abort() {
  constexpr const char* kReason = "the operation was aborted by its caller";
  engine_->abort(kReason);
  if (pending_.plans != nullptr) pending_.plans->abort(kReason);
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
