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

// A thread of an engine that sleeps until it is wanted. All signals are blocked in it. It ends before
// libraries are torn down when the process exits, and does not exist in a forked child.
class HelperThread {
 public:
  // What the thread sees of its engine. Outlives both.
  class Control {
   public:
    // The thread is to return from its body at once, and to touch nothing of the engine any more.
    bool stopped() const { return stopped_.load(); }
    // Whether a sleep that begins now may be missed by a wake() is decided by the word: take it before the
    // last look at what to sleep for.
    std::uint32_t word() const { return word_.load(); }
    // Until wake() or stop() is called after `word` was taken, at most for `limit`.
    void sleep(std::uint32_t word, Duration limit);
    void wake();
    // By the thread: between leave() and return_to_engine() it touches nothing of the engine, and who
    // destroys that waits a second for it at most. So it may run code of others, which may wait for the
    // destruction (a tensor of Python's is freed under the interpreter's lock, and the one that destroys may
    // have it).
    void leave() { place_.store(Place::away); }
    // Whether the engine is still there and wanted; otherwise the body has to return at once.
    [[nodiscard]] bool return_to_engine();

   private:
    // The thread moves between engine and away. Who destroys the engine makes away to gone; both by exchanges
    // of this one word, so that only one of them comes first.
    enum class Place { engine, away, gone };

    friend class HelperThread;
    friend void stop_helper_threads();
    void stop();
    // Returns when the thread has left its body for good, or at the deadline.
    void wait_for_end(const Deadline& deadline);
    // Returns when the thread will not touch the engine any more.
    void wait_until_gone();

    std::atomic<std::uint32_t> word_{0};
    std::atomic<bool> stopped_{false};
    std::atomic<bool> ended_{false};
    std::atomic<Place> place_{Place::engine};
  };
  using Body = std::function<void(Control&)>;

  // Null where the process is about to end, or has no thread left (which is logged).
  static std::unique_ptr<HelperThread> start(Body body);
  // Stops the thread and waits until it touches its engine no more; called by the thread itself it only tells
  // it to stop.
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void wake() { control_->wake(); }
  // Tells it to return, without waiting for that.
  void stop() { control_->stop(); }

  Control& control() const { return *control_; }

 private:
  HelperThread(std::thread::id thread, std::shared_ptr<Control> control);

  // The thread is detached and tells of its end in `control_`: a process may exit() while engines live.
  const std::thread::id thread_;
  const std::shared_ptr<Control> control_;
  const int process_;  // a forked child does not have the thread
};

// Ends the helper threads of all engines of this process, for good; operations then move on in the calls of
// their ranks only. Called by exit(), and by Python before its interpreter goes.
void stop_helper_threads();

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
