#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "rondo/collective/shared_memory/helper_thread.h"

namespace rondo::shared_memory {

// The helper threads of an engine, of which one at a time is on duty. While a thread runs code of others
// (HelperThread::Control::leave()) it is off duty, and another takes its place: that code may wait for an
// operation which only a helper moves on.
//
// Every method is called with the owner's lock held, except where it says otherwise.
class HelperTeam {
 public:
  // `body` is run by each thread once, without the lock, and returns when its Control is stopped. A thread
  // begins on duty.
  explicit HelperTeam(HelperThread::Body body) : body_(std::move(body)) {}
  // Without the lock: stops all threads, as HelperThread's destructor does.
  ~HelperTeam() { end(); }
  HelperTeam(const HelperTeam&) = delete;
  HelperTeam& operator=(const HelperTeam&) = delete;

  bool has_threads() const { return !threads_.empty(); }
  bool on_duty() const { return on_duty_ != nullptr; }
  // Wakes the thread on duty; where none is, puts one on duty. There is none where no thread can be had.
  void call();
  // By the thread on duty, before it runs code of others.
  void go_off_duty() { on_duty_ = nullptr; }
  // By a thread that went off duty, with `lock` given up: takes it, and returns when the thread is on duty
  // again. False, without the lock, when the thread is to return from its body.
  [[nodiscard]] bool return_to_duty(std::unique_lock<std::mutex>& lock, HelperThread::Control& control);
  // Without the lock. Tells all threads to return, and waits for none.
  void stop();
  // Without the lock. Stops all threads and waits until none touches the engine any more.
  void end();

 private:
  const HelperThread::Body body_;
  std::vector<std::unique_ptr<HelperThread>> threads_;
  HelperThread::Control* on_duty_ = nullptr;
  std::vector<HelperThread::Control*> idle_;
};

}  // namespace rondo::shared_memory
