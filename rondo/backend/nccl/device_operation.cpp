#include "rondo/backend/nccl/device_operation.h"

#include "rondo/device/stream_event.h"

namespace rondo {

void DeviceOperation::set_work(const c10::intrusive_ptr<c10d::Work>& work) {
  const std::lock_guard lock(mutex_);
  work_.emplace(work);
}

void DeviceOperation::cancel() {
  const std::lock_guard lock(mutex_);
  is_cancelled_ = true;
}

void DeviceOperation::note_wait(c10::Device device) {
  c10::Event event = record_event(device);
  const std::lock_guard lock(mutex_);
  event_.emplace(std::move(event));
}

bool DeviceOperation::has_ended() {
  const std::lock_guard lock(mutex_);
  if (is_cancelled_) return true;
  if (event_) return event_->query();
  if (!work_) return false;
  const c10::intrusive_ptr<c10d::Work> work = work_->lock();
  return !work || work->isCompleted();
}

bool DeviceOperation::is_awaited() {
  const std::lock_guard lock(mutex_);
  return event_.has_value();
}

}  // namespace rondo
