#include "rondo/backend/native/coalesced_work.h"

#include <algorithm>

#include "rondo/backend/native/finished_future.h"
#include "rondo/base/time.h"

namespace rondo {

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
  for (const auto& part : parts_) {
    for (const at::Tensor& tensor : part->result()) all.push_back(tensor);
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() { return finished_future(*this); }

c10::intrusive_ptr<c10d::Work> coalesce(int rank, c10d::OpType type, CoalescedWork::Parts parts) {
  if (parts.size() == 1) return parts.front();
  return c10::make_intrusive<CoalescedWork>(rank, type, std::move(parts));
}

}  // namespace rondo
