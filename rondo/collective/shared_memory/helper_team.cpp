#include "rondo/collective/shared_memory/helper_team.h"

namespace rondo::shared_memory {

void HelperTeam::call() {
  if (on_duty_ == nullptr && !idle_.empty()) {
    on_duty_ = idle_.back();
    idle_.pop_back();
  }
  if (on_duty_ != nullptr) {
    on_duty_->wake();
    return;
  }
  std::unique_ptr<HelperThread> thread = HelperThread::start(body_);
  if (thread == nullptr) return;
  on_duty_ = &thread->control();
  threads_.push_back(std::move(thread));
}

bool HelperTeam::return_to_duty(std::unique_lock<std::mutex>& lock, HelperThread::Control& control) {
  // The function that the thread ran may have ended the engine.
  if (!control.return_to_engine()) return false;
  lock.lock();
  if (on_duty_ == nullptr) {
    on_duty_ = &control;
    return true;
  }
  idle_.push_back(&control);
  while (on_duty_ != &control) {
    const std::uint32_t word = control.word();
    lock.unlock();
    control.sleep(word, Duration::max());
    if (control.stopped()) return false;
    lock.lock();
  }
  return true;
}

void HelperTeam::stop() {
  for (const auto& thread : threads_) thread->stop();
}

void HelperTeam::end() {
  stop();
  threads_.clear();
}

}  // namespace rondo::shared_memory
