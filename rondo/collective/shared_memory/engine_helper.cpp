#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"
#include "rondo/collective/shared_memory/engine_visit.h"

// The helper thread of an engine. On duty it is in one of three states, and leaves each with the engine
// locked:
//
//   asleep     nothing was in flight for a while; start() wakes it
//   watching   operations are in flight: it checks at intervals whether a thread of the rank has called
//   helping    none has called, so it does the work of wait(), and sleeps on the same wakeup as wait() in
// between,
//              until nothing is in flight or a thread of the rank calls
//
// While it announces ended operations it is off duty, and if more are in flight another thread takes its
// place.
namespace rondo::shared_memory {
namespace {

// Time without calls of the rank after which the helper takes over. A shorter time costs computation time of
// ranks that would have called anyway.
constexpr Duration kShortestWatch = std::chrono::milliseconds(1);
// A check takes the core from the rank for 10 to 60 us, which is significant in a step of 300 us. A rank that
// calls at least kManyCalls times per millisecond will call again soon, so the helper doubles the interval,
// up to this one.
constexpr Duration kLongestWatch = std::chrono::milliseconds(16);
constexpr std::uint64_t kManyCalls = 8;
// Time that it keeps watching after the last operation, so that a rank that keeps starting operations does
// not wake it for each.
constexpr Duration kQuietTime = std::chrono::milliseconds(20);

// Returns the time to the next check after one that has seen `calls` calls in `watched`.
Duration next_watch(Duration last, std::uint64_t calls, Duration watched) {
  const auto milliseconds = static_cast<std::uint64_t>(watched / kShortestWatch);
  return calls >= kManyCalls * milliseconds ? std::min(2 * last, kLongestWatch) : kShortestWatch;
}

}  // namespace

void Engine::call_helper() {
  if (helpers_.on_duty() && !helper_sleeps_) return;
  helper_sleeps_ = false;
  helpers_.call();
}

void Engine::help(HelperThread::Control& control) {
  Duration quiet{};
  Duration watch = kShortestWatch;
  std::unique_lock lock(mutex_);
  while (!control.stopped()) {
    quiet = anything_under_way() || anything_to_announce() ? Duration::zero() : quiet + watch;
    const bool sleeps = quiet > kQuietTime;
    helper_sleeps_ = sleeps;
    const std::uint64_t seen = visits_;
    const std::uint32_t word = control.word();
    lock.unlock();
    Duration watched{};
    do {
      control.sleep(word, sleeps ? Duration::max() : watch);
      if (control.stopped()) return;
      watched += watch;
      // If the lock is taken, a thread of the rank is calling now, and would have to wake the helper.
    } while (!sleeps && !lock.try_lock());
    if (sleeps) lock.lock();
    helper_sleeps_ = false;
    const std::uint64_t calls = visits_ - seen;
    watch = next_watch(watch, calls, watched);
    const bool wanted = anything_under_way() || anything_to_announce();
    if (calls == 0 && waiting_ == 0 && wanted) take_over(lock, control);
  }
}

void Engine::take_over(std::unique_lock<std::mutex>& lock, HelperThread::Control& control) {
  const std::uint64_t seen = visits_;
  TimePoint next_check = Clock::now() + kPeerCheckInterval;
  TimePoint next_stopped_check = Clock::now() + kStoppedCheckInterval;
  StoppedCounts stopped(static_cast<std::size_t>(size()));
  RankSegment& own = peers_.own();
  while (!control.stopped() && visits_ == seen && waiting_ == 0 &&
         (anything_under_way() || anything_to_announce())) {
    const std::uint32_t wakeup = own.wakeup.load();
    own.sleeping.fetch_add(1);
    bool moved = false;
    try {
      moved = advance();
      if (!moved && Clock::now() >= next_check) {
        next_check = Clock::now() + kPeerCheckInterval;
        look_for_trouble(stopped, next_stopped_check);
      }
    } catch (const std::exception&) {
      // The failure has been reported to the owners and the peers.
    }
    if (!unannounced_.empty()) share_unannounced();
    Owner owner = anything_to_announce() ? batches_.front()->next() : nullptr;
    if (!moved && owner == nullptr) {
      lock.unlock();
      futex_wait(own.wakeup, wakeup, kSleepTime);
      if (control.stopped()) return;
      lock.lock();
    }
    own.sleeping.fetch_sub(1);
    if (owner == nullptr) continue;
    helpers_.go_off_duty();
    if (anything_under_way() || anything_to_announce()) helpers_.call();
    lock.unlock();
    control.leave();
    owner->announce();
    owner.reset();  // may release the last reference to an operation and its tensors
    // The announcement may have destroyed the engine.
    if (!helpers_.return_to_duty(lock, control)) return;
  }
}

// Makes the checks of a wait for operations without a waiting thread. Throws the errors of wait().
void Engine::look_for_trouble(StoppedCounts& stopped, TimePoint& next_stopped_check) {
  const PeerTrouble trouble = look_at_peers();
  drain_received(trouble);
  if (!anything_under_way()) return;
  std::vector<int> missing;
  std::string what = "messages";
  if (!operations_.empty()) what = describe_collective(operations_.front().operation->sequence(), missing);
  throw_if_peer_failed(trouble, what, missing);
  if (Clock::now() >= next_stopped_check) {
    next_stopped_check = next_look_for_stopped(next_stopped_check);
    throw_if_stopped(stopped, what, missing);
  }
  const auto check = [&](std::uint64_t sequence, const Deadline& deadline) {
    if (!deadline.passed()) return;
    const std::string late = describe_collective(sequence, missing);
    time_out(late, "the time it was given", missing);
  };
  // Queued operations first, which have the later sequence numbers; the exchange of sizes is late if its
  // all_to_all is.
  for (std::size_t i = queued_.size(); i > 0; --i) check(started_ + i - 1, queued_[i - 1].deadline);
  for (const PendingOperation& under_way : operations_)
    check(under_way.operation->sequence(), under_way.deadline);
  if (const std::shared_ptr<Message> late = messages_.late()) {
    std::vector<int> peer;
    const std::string text = describe_message(*late, peer);
    time_out(text, "the time it was given", peer);
  }
}

}  // namespace rondo::shared_memory
