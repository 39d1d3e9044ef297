#pragma once

#include <mutex>
#include <utility>

#include "rondo/collective/shared_memory/engine.h"

namespace rondo::shared_memory {

// Interval between checks for stopped ranks.
constexpr auto kStoppedCheckInterval = std::chrono::milliseconds(100);

// Returns the time of the next check after one that was due at `due`. A late check does not delay later ones,
// unless this rank was itself delayed for longer than the interval.
inline TimePoint next_look_for_stopped(TimePoint due) {
  const TimePoint now = Clock::now();
  const TimePoint next = due + kStoppedCheckInterval;
  return next > now ? next : now + kStoppedCheckInterval;
}

class Engine::Visit {
 public:
  explicit Visit(Engine& engine) : engine_(engine), lock_(mutex_of(engine)) { ++engine.visits_; }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() {
    if (engine_.unannounced_.empty()) return;
    if (engine_.unannounced_.size() == 1) {
      // Keeps the list's memory: most visits of small operations come here.
      const std::shared_ptr<OperationOwner> owner = std::move(engine_.unannounced_.front());
      engine_.unannounced_.clear();
      lock_.unlock();
      owner->announce();
      return;
    }
    const std::shared_ptr<Announcements> batch = engine_.share_unannounced();
    engine_.call_helper();
    // The announcements may destroy this engine.
    lock_.unlock();
    while (const auto owner = batch->next()) owner->announce();
  }

  // Announces ended operations during a call.
  void announce() {
    if (engine_.unannounced_.empty()) return;
    const std::shared_ptr<Announcements> batch = engine_.share_unannounced();
    engine_.call_helper();
    without_lock([&] {
      while (const auto owner = batch->next()) owner->announce();
    });
  }
  template <class Function>
  void without_lock(Function function) {
    lock_.unlock();
    function();
    lock_.lock();
  }

 private:
  // In a forked child a thread that does not exist there may hold the lock.
  static std::mutex& mutex_of(Engine& engine) {
    engine.check_process();
    return engine.mutex_;
  }

  Engine& engine_;
  std::unique_lock<std::mutex> lock_;
};

// Counts waiting threads.
class Waiting {
 public:
  explicit Waiting(int& threads) : threads_(threads) { ++threads_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() { --threads_; }

 private:
  int& threads_;
};

}  // namespace rondo::shared_memory
