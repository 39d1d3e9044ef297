#include "rondo/backend/requests/request_call.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "rondo/base/time.h"

namespace rondo {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> future_of_tensors() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

void append(const std::vector<at::Tensor>& some, std::vector<at::Tensor>& all) {
  all.insert(all.end(), some.begin(), some.end());
}

}  // namespace

bool CoalescedWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& part : parts_) {
    if (std::exception_ptr error = part->exception()) return error;
  }
  return nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline = timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  for (const auto& part : parts_) {
    // kNoTimeout, which is zero, keeps the timeout that each part was started with.
    const auto remaining =
        timeout == kNoTimeout
            ? kNoTimeout
            : std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining()),
                       std::chrono::milliseconds(1));
    part->wait(remaining);
  }
  return true;
}

void CoalescedWork::abort() {
  for (const auto& part : parts_) part->abort();
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) append(part->result(), all);
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  using c10::ivalue::Future;
  struct Rest {
    std::atomic<std::size_t> parts;
    std::mutex mutex;  // protects error
    std::exception_ptr error;
  };
  auto whole = future_of_tensors();
  auto rest = std::make_shared<Rest>();
  rest->parts = parts_.size();
  if (parts_.empty()) whole->markCompleted(c10::IValue(std::vector<at::Tensor>()));
  for (const auto& part : parts_) {
    part->getFuture()->addCallback([whole, rest, parts = parts_](Future& one) {
      if (one.hasError()) {
        const std::lock_guard lock(rest->mutex);
        if (!rest->error) rest->error = one.exception_ptr();
      }
      if (--rest->parts > 0) return;
      if (rest->error) return whole->setError(rest->error);
      std::vector<at::Tensor> all;
      for (const auto& each : parts) append(each->result(), all);
      whole->markCompleted(c10::IValue(std::move(all)));
    });
  }
  return whole;
}

EndedWork::EndedWork(int rank, c10d::OpType type, std::vector<at::Tensor> results)
    : c10d::Work(rank, type), results_(std::move(results)) {
  finish();
}

c10::intrusive_ptr<c10::ivalue::Future> EndedWork::getFuture() {
  auto future = future_of_tensors();
  future->markCompleted(c10::IValue(results_));
  return future;
}

BackgroundWork::BackgroundWork(int rank, c10d::OpType type, std::shared_ptr<const OperationMemory> memory)
    : c10d::Work(rank, type),
      results_(memory->list_of_results()),
      memory_(std::move(memory)),
      future_(future_of_tensors()) {}

void BackgroundWork::complete(std::exception_ptr error) {
  c10::IValue value;
  if (!error) {
    try {
      memory_->copy_back();
      value = memory_->value_of_future();
    } catch (...) {
      error = std::current_exception();
    }
  }
  memory_.reset();
  finish(error);
  // Without the lock of the work: callbacks may start the next collective.
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(std::move(value));
  }
}

c10::intrusive_ptr<c10d::Work> coalesce(int rank, c10d::OpType type, CoalescedWork::Parts parts) {
  if (parts.size() == 1) return parts.front();
  return c10::make_intrusive<CoalescedWork>(rank, type, std::move(parts));
}

}  // namespace rondo
