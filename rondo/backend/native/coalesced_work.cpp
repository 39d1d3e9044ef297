#include "rondo/backend/native/coalesced_work.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "rondo/base/time.h"

namespace rondo {
namespace {

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
    // kNoTimeout, which is zero, leaves each part the timeout that it was started with.
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
  auto whole = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
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

c10::intrusive_ptr<c10d::Work> coalesce(int rank, c10d::OpType type, CoalescedWork::Parts parts) {
  if (parts.size() == 1) return parts.front();
  return c10::make_intrusive<CoalescedWork>(rank, type, std::move(parts));
}

}  // namespace rondo
