#pragma once

#include <mutex>
#include <utility>

#include "rondo/collective/shared_memory/engine.h"

namespace rondo::shared_memory {

// Sightings of a stopped rank are this far apart.
constexpr auto kStoppedCheckInterval = std::chrono::milliseconds(100);

// Returns the time of the look after the one that was due at `due`. A look that comes late does not delay
// those after it, unless this rank was itself held up for longer than the interval.
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
      // The list keeps its memory: most visits of small operations come here.
      const std::shared_ptr<OperationOwner> owner = std::move(engine_.unannounced_.front());
      engine_.unannounced_.clear();
      lock_.unlock();
      owner->announce();
      return;
    }
    const std::shared_ptr<Announcements> batch = engine_.share_unannounced();
    engine_.call_helper();
    // What owners do may be the end of this engine.
    lock_.unlock();
    while (const auto owner = batch->next()) owner->announce();
  }

  // In the middle of a call.
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
  // In a forked child a thread that does not exist there may have locked it.
  static std::mutex& mutex_of(Engine& engine) {
    engine.check_process();
    return engine.mutex_;
  }

  Engine& engine_;
  std::unique_lock<std::mutex> lock_;
};

// Counts a thread that waits.
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
