#include "rondo/backend/gloo/send_watch.h"

#include <algorithm>
#include <stdexcept>

namespace rondo {
namespace {

constexpr std::chrono::milliseconds kRound{250};
// A send may have ended before its connection did, and the thread that waits for it not have run since: in
// these rounds it can. Rounds, not time: a machine that stood still has had none.
constexpr int kLostRounds = 5;
// A connection is tried each round at first, and one round less often for each so many tries that it has had:
// some 13,000 in a day.
constexpr std::uint64_t kTriesPerRound = 250;

}  // namespace

bool SendWatch::wait(c10d::Work& send, int peer, std::chrono::milliseconds timeout) {
  std::list<Wait>::iterator own;
  {
    const std::lock_guard lock(mutex_);
    own = waits_.insert(waits_.end(), {&send, peer});
    if (!stopped_ && !thread_.joinable()) thread_ = std::thread([this] { watch(); });
    if (idle_) changed_.notify_one();
  }
  const auto end = [&] {
    const std::lock_guard lock(mutex_);
    const bool lost = own->lost_rounds == kLostRounds;
    waits_.erase(own);
    return lost;
  };
  bool done = false;
  try {
    done = send.wait(timeout);
  } catch (...) {
    end();
    throw;
  }
  if (end() && !done) throw std::runtime_error("the connection has ended");
  return done;
}

void SendWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void SendWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (waits_.empty()) {
      idle_ = true;
      changed_.wait(lock);
      idle_ = false;
      continue;
    }
    changed_.wait_for(lock, kRound, [this] { return stopped_; });
    if (!stopped_) look_at_waits();
  }
}

void SendWatch::look_at_waits() {
  for (auto& [peer, tries] : tries_) {
    if (tries.rounds_left > 0) --tries.rounds_left;
  }
  for (Wait& wait : waits_) {
    if (wait.lost_rounds > 0) {
      if (wait.lost_rounds < kLostRounds && ++wait.lost_rounds == kLostRounds) wait.send->abort();
      continue;
    }
    Tries& tries = tries_[wait.peer];
    if (++wait.rounds < 2 || tries.rounds_left > 0) continue;
    tries.rounds_left = 1 + ++tries.made / kTriesPerRound;
    try {
      probe_(wait.peer);
    } catch (const std::exception&) {
      wait.lost_rounds = 1;
    }
  }
}

}  // namespace rondo
