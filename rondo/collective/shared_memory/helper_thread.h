#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::shared_memory {

// A thread of an engine that sleeps until it is needed. Blocks all signals. The thread ends before libraries
// are torn down at exit of the process; it does not exist in a forked child.
class HelperThread {
 public:
  // The state that the thread shares with its engine. Outlives both.
  class Control {
   public:
    // Returns whether the thread must return from its body at once, without using the engine.
    bool stopped() const { return stopped_.load(); }
    // Returns the word for sleep(). Read it before the last check of the condition, so that a wake() in
    // between is not missed.
    std::uint32_t word() const { return word_.load(); }
    // Sleeps until wake() or stop() is called after `word` was read, at most for `limit`.
    void sleep(std::uint32_t word, Duration limit);
    void wake();
    // Declares that the thread does not use the engine until return_to_engine(); the engine's destructor then
    // waits for it for at most a second. So it may run callbacks that wait for the destruction (a Python
    // tensor is freed under the interpreter's lock, which the destroying thread may hold).
    void leave() { place_.store(Place::away); }
    // Returns whether the engine still exists and needs the thread; otherwise the body must return at once.
    [[nodiscard]] bool return_to_engine();

   private:
    // The thread switches between `engine` and `away`. The engine's destructor changes `away` to `gone`. Both
    // use atomic exchanges of this one word, so that only one of them succeeds.
    enum class Place { engine, away, gone };

    friend class HelperThread;
    friend void stop_helper_threads();
    void stop();
    // Blocks until the thread has returned from its body, or the deadline.
    void wait_for_end(const Deadline& deadline);
    // Blocks until the thread will no longer use the engine.
    void wait_until_gone();

    std::atomic<std::uint32_t> word_{0};
    std::atomic<bool> stopped_{false};
    std::atomic<bool> ended_{false};
    std::atomic<Place> place_{Place::engine};
  };
  using Body = std::function<void(Control&)>;

  // Starts a thread. Returns null if the process is about to end, or if the system refuses a thread (which is
  // logged).
  static std::unique_ptr<HelperThread> start(Body body);
  // Stops the thread and waits until it no longer uses its engine. Called by the thread itself, only requests
  // the stop.
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void wake() { control_->wake(); }
  // Requests that the thread return, without waiting.
  void stop() { control_->stop(); }

  Control& control() const { return *control_; }

 private:
  HelperThread(std::thread::id thread, std::shared_ptr<Control> control);

  // The thread is detached and signals its end in `control_`, because a process may exit() while engines
  // exist.
  const std::thread::id thread_;
  const std::shared_ptr<Control> control_;
  const int process_;  // a forked child does not have the thread
};

// Ends the helper threads of all engines of this process permanently; operations then progress only in calls
// of their ranks. Called by exit(), and by Python before its interpreter ends.
void stop_helper_threads();

// The helper threads of an engine, of which one at a time is on duty. While a thread runs callbacks
// (HelperThread::Control::leave()) it is off duty, and another takes its place, because a callback may wait
// for an operation that only a helper progresses.
//
// Every method requires the owner's lock, unless its comment says otherwise.
class HelperTeam {
 public:
  // Each thread runs `body` once, without the lock; it returns when its Control is stopped. A thread starts
  // on duty.
  explicit HelperTeam(HelperThread::Body body) : body_(std::move(body)) {}
  // Stops all threads, as HelperThread's destructor does. Without the lock.
  ~HelperTeam() { end(); }
  HelperTeam(const HelperTeam&) = delete;
  HelperTeam& operator=(const HelperTeam&) = delete;

  bool has_threads() const { return !threads_.empty(); }
  bool on_duty() const { return on_duty_ != nullptr; }
  // Wakes the thread on duty, or puts one on duty. None is on duty if the system refuses a thread.
  void call();
  // Called by the thread on duty before it runs callbacks.
  void go_off_duty() { on_duty_ = nullptr; }
  // Called by a thread that went off duty, with `lock` released: takes it, and blocks until the thread is on
  // duty again. Returns false, without the lock, if the thread must return from its body.
  [[nodiscard]] bool return_to_duty(std::unique_lock<std::mutex>& lock, HelperThread::Control& control);
  // Requests that all threads return, and waits for none. Without the lock.
  void stop();
  // Stops all threads and waits until none uses the engine any more. Without the lock.
  void end();

 private:
  const HelperThread::Body body_;
  std::vector<std::unique_ptr<HelperThread>> threads_;
  HelperThread::Control* on_duty_ = nullptr;
  std::vector<HelperThread::Control*> idle_;
};

}  // namespace rondo::shared_memory
