#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"
#include "rondo/collective/shared_memory/engine_visit.h"

// The helper thread of an engine. On duty it is in one of three states, and leaves each with the engine
// locked:
//
//   asleep     nothing was under way for a while; start() wakes it
//   watching   something is under way: it looks now and then whether a thread of the rank has called
//   helping    none has, so it does what wait() would, and sleeps on the same wakeup as wait() in between,
//              until nothing is under way or a thread of the rank calls
//
// While it announces what has ended it is off duty, and where more is under way another one takes its place.
namespace rondo::shared_memory {
namespace {

// So long a rank may be elsewhere before the helper takes over. Shorter takes time from the computation of
// ranks that would have called anyway.
constexpr Duration kShortestWatch = std::chrono::milliseconds(1);
// A look takes its core from the rank for 10 to 60 us, which a step of 300 us notices. A rank that calls at
// least kManyCalls times a millisecond will call again soon, so the helper looks half as often, down to this.
constexpr Duration kLongestWatch = std::chrono::milliseconds(16);
constexpr std::uint64_t kManyCalls = 8;
// It goes on watching for so long when nothing is under way any more, so that a rank that keeps starting
// operations does not wake it for each.
constexpr Duration kQuietTime = std::chrono::milliseconds(20);

// How long to the next look after one that has seen `calls` in `watched`.
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
      // Where the lock is taken a thread of the rank is calling now, and would have to wake the helper up.
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
      // The operations' owners know, and the peers.
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
    owner.reset();  // the last reference to an operation may go here, and with it its tensors
    // The end of an operation may have been the end of the engine.
    if (!helpers_.return_to_duty(lock, control)) return;
  }
}

// What a wait would look at, for operations that nobody waits for. Throws what it would.
void Engine::look_for_trouble(StoppedCounts& stopped, TimePoint& next_stopped_check) {
  const PeerTrouble trouble = look_at_peers();
  take_what_came(trouble);
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
  // What is queued has the later sequence numbers; the sizes of an all_to_all are late when it is.
  for (std::size_t i = queued_.size(); i > 0; --i) check(started_ + i - 1, queued_[i - 1].deadline);
  for (const UnderWay& under_way : operations_) check(under_way.operation->sequence(), under_way.deadline);
  if (const std::shared_ptr<Message> late = messages_.late()) {
    std::vector<int> peer;
    const std::string text = describe_message(*late, peer);
    time_out(text, "the time it was given", peer);
  }
}

}  // namespace rondo::shared_memory
