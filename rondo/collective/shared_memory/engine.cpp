#include "rondo/collective/shared_memory/engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/futex.h"
#include "rondo/channel/waiting.h"

namespace rondo::shared_memory {
namespace {

constexpr auto kStoppedCheckInterval = std::chrono::milliseconds(100);

// With a core for every rank, spinning through a small collective saves the 5 us of a sleep. With fewer, a
// spinning rank keeps the one it waits for from running.
int spin_limit_for(int ranks) { return ranks <= sysconf(_SC_NPROCESSORS_ONLN) ? 4000 : 2; }

}  // namespace

Engine::Engine(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena)
    : peers_(store, options, std::move(arena)),
      messages_(peers_),
      spin_limit_(spin_limit_for(options.size)) {}

void Engine::check(const CollectiveRequest& request) const {
  if (!supports(request.type, request.reduction)) {
    throw UsageError(str("reduction ", name(request.reduction), " is not defined on ", name(request.type)));
  }
  if (request.root < 0 || request.root >= size()) {
    throw UsageError(
        str("root ", request.root, " is not a rank of group '", options().group_name, "' of ", size()));
  }
  if (request.weighted &&
      (request.reduction != Reduction::average || request.kind != OperationKind::all_reduce)) {
    throw UsageError("weights go with an averaging all_reduce only");
  }
}

Operation Engine::begin(CollectiveRequest request) {
  throw_if_failed();
  Operation operation(std::move(request), started_, next_ticket_, peers_);
  next_ticket_ = operation.end_ticket();
  ++started_;
  return operation;
}

std::uint64_t Engine::start(CollectiveRequest request) {
  check(request);
  const std::lock_guard lock(mutex_);
  operations_.push_back(begin(std::move(request)));
  advance();
  return started_ - 1;
}

void Engine::run(CollectiveRequest request, Duration timeout) {
  check(request);
  std::unique_lock lock(mutex_);
  const bool alone = operations_.empty();
  Operation operation = begin(std::move(request));
  const std::uint64_t sequence = operation.sequence();
  // A collective that ends while it spins never gets into the queue and never reads the clock: together they
  // take as long as a cache line on its way between two cores.
  if (alone && spin_through(operation)) return;
  operations_.push_back(std::move(operation));
  wait_until(
      lock, [&] { return completed_ > sequence; }, {Deadline::after(timeout), nullptr},
      [&](std::vector<int>& missing) { return describe_front(sequence, missing); });
}

// The only operation under way, which is not in the queue, without what step() and advance() do for others.
// Returns false when it has to be waited for.
bool Engine::spin_through(Operation& operation) {
  try {
    std::uint64_t& slot_end = slot_end_ticket_[operation.sequence() % kSlots];
    if (!operation.describe(slot_end, known_least_taken_)) return false;
    slot_end = operation.end_ticket();
    peers_.ring_bells();
    for (int i = 0; i <= spin_limit_; ++i) {
      bool moved = !operation.fully_posted() && operation.post(least_taken());
      moved |= operation.work();
      moved |= operation.take();
      if (moved) peers_.ring_bells();
      if (operation.complete()) {
        ++completed_;
        return true;
      }
      if (!moved) relax_processor();
    }
    return false;
  } catch (...) {
    fail(std::current_exception());
  }
}

std::uint64_t Engine::least_taken() {
  std::uint64_t least = peers_.own().taken.load();
  for (int r = 0; r < peers_.size(); ++r) least = std::min(least, peers_.segment(r).taken.load());
  known_least_taken_ = least;
  return least;
}

bool Engine::step() {
  bool moved = false;
  // Cheap first: the value seen last time usually suffices.
  std::uint64_t least = known_least_taken_;
  bool refreshed = false;
  const auto refresh = [&] {
    if (!refreshed) least = least_taken();
    refreshed = true;
  };
  for (Operation& operation : operations_) {
    if (operation.described()) continue;
    const std::uint64_t slot_free = slot_end_ticket_[operation.sequence() % kSlots];
    if (!operation.describe(slot_free, least)) {
      refresh();
      if (!operation.describe(slot_free, least)) break;
    }
    slot_end_ticket_[operation.sequence() % kSlots] = operation.end_ticket();
    moved = true;
  }
  for (Operation& operation : operations_) {
    if (operation.fully_posted()) continue;
    refresh();
    moved |= operation.post(least);
    if (!operation.fully_posted()) break;
  }
  for (Operation& operation : operations_) {
    if (operation.fully_worked()) continue;
    moved |= operation.work();
    if (!operation.fully_worked()) break;
  }
  while (!operations_.empty()) {
    moved |= operations_.front().take();
    if (!operations_.front().complete()) break;
    operations_.pop_front();
    ++completed_;
    moved = true;
  }
  return moved;
}

bool Engine::advance() {
  try {
    bool moved = messages_.progress();
    while (!operations_.empty() && step()) moved = true;
    if (moved) peers_.ring_bells();
    return moved;
  } catch (...) {
    fail(std::current_exception());
  }
}

void Engine::progress() {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  advance();
}

bool Engine::completed(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (completed_ > sequence) return true;
  throw_if_failed();
  advance();
  return completed_ > sequence;
}

bool Engine::completed(const Message& message) {
  const std::lock_guard lock(mutex_);
  if (message.done) return true;
  throw_if_failed();
  advance();
  return message.done;
}

std::uint64_t Engine::sequence() {
  const std::lock_guard lock(mutex_);
  return started_;
}

std::shared_ptr<Message> Engine::start_send(Message message) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  auto shared = messages_.send(message);
  advance();
  return shared;
}

std::shared_ptr<Message> Engine::start_receive(Message message) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  auto shared = messages_.receive(message);
  advance();
  return shared;
}

void Engine::throw_if_failed() const {
  if (failure_) std::rethrow_exception(failure_);
}

void Engine::fail(std::exception_ptr error) {
  failure_ = error;
  peers_.announce_failure(describe_failure(error, rank()));
  std::rethrow_exception(error);
}

void Engine::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = std::make_exception_ptr(CancelledError(reason));
  peers_.announce_failure({ChannelFailure::Kind::other, rank(), reason});
}

void Engine::close(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::make_exception_ptr(UsageError(reason));
}

Engine::PeerTrouble Engine::look_at_peers() const {
  PeerTrouble trouble;
  for (int r = 0; r < size(); ++r) {
    const RankState state = peers_.segment(r).state.load();
    if (r != rank() && state == RankState::failed) trouble.failed.push_back(r);
    if (r != rank() && state == RankState::left) trouble.left.push_back(r);
  }
  trouble.ended = peers_.ended();
  return trouble;
}

void Engine::throw_if_hopeless(const PeerTrouble& trouble, const std::string& what,
                               const std::vector<int>& missing) {
  const auto contains = [](const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  const std::string prefix = str(what, " on ", peers_.self(), " cannot complete: ");
  // A rank that is gone explains the failures that others announce because of it.
  for (const int r : trouble.ended) {
    if (contains(trouble.left, r) || contains(trouble.failed, r)) continue;
    fail(std::make_exception_ptr(
        PeerLostError(str(prefix, "the process of ", peers_.who(r),
                          " has ended. Its own output says why; restart the job from the last checkpoint."),
                      {r})));
  }
  for (const int r : trouble.failed) {
    try {
      throw_failure(str(prefix, peers_.who(r), " failed: "), peers_.failure_of(r));
    } catch (...) {
      fail(std::current_exception());
    }
  }
  for (const int r : missing) {
    if (!contains(trouble.left, r)) continue;
    fail(std::make_exception_ptr(PeerLostError(
        str(prefix, peers_.who(r), " has left the group. Did it make fewer calls than this rank?"), {r})));
  }
}

// Sightings are counted, not timed: a rank that was itself stopped for a while must not blame one that wakes
// up a moment later.
void Engine::throw_if_stopped(StoppedCounts& counts, const std::string& what,
                              const std::vector<int>& missing) {
  StoppedCounts now(static_cast<std::size_t>(size()));
  for (const int r : peers_.stopped())
    now[static_cast<std::size_t>(r)] = counts[static_cast<std::size_t>(r)] + 1;
  counts = std::move(now);
  for (const int r : missing) {
    if (counts[static_cast<std::size_t>(r)] * kStoppedCheckInterval < options().stopped_grace) continue;
    fail(std::make_exception_ptr(TimeoutError(
        str(what, " on ", peers_.self(), " cannot complete: the process of ", peers_.who(r),
            " is stopped by a signal (SIGSTOP) for ", to_string(options().stopped_grace),
            ". Continue it with kill -CONT before that, or restart the job from the last checkpoint."),
        {r})));
  }
}

template <class Done, class Describe>
void Engine::wait_until(std::unique_lock<std::mutex>& lock, Done done, const Wait& wait, Describe describe) {
  if (done()) return;
  throw_if_failed();
  for (int i = 0; i < spin_limit_; ++i) {
    advance();
    if (done()) return;
    relax_processor();
  }
  const Deadline deadline = wait.deadline.is_never() ? Deadline::after(options().timeout) : wait.deadline;
  const TimePoint began = Clock::now();
  TimePoint next_check = began + kPeerCheckInterval;
  TimePoint next_stopped_check = began + kStoppedCheckInterval;
  StoppedCounts stopped(static_cast<std::size_t>(size()));
  RankSegment& own = peers_.own();
  while (true) {
    const TimePoint now = Clock::now();
    const bool may_sleep = now - began > kYieldTime;
    if (!may_sleep) {
      lock.unlock();
      sched_yield();
      lock.lock();
    } else {
      // Peers ring after they publish and find `sleeping` set; the look in between closes the gap.
      const std::uint32_t bell = own.bell.load();
      own.sleeping.store(1);
      const bool moved = advance();
      if (!moved && !done()) {
        lock.unlock();
        futex_wait(own.bell, bell, std::min<Duration>(kSleepTime, deadline.remaining()));
        lock.lock();
      }
      own.sleeping.store(0);
    }
    if (done()) return;
    throw_if_failed();
    advance();
    if (done()) return;
    if (wait.cancel != nullptr && wait.cancel->cancelled()) {
      std::vector<int> missing;
      fail(std::make_exception_ptr(
          CancelledError(str(describe(missing), " on ", peers_.self(), " was cancelled"))));
    }
    if (Clock::now() < next_check && !deadline.passed()) continue;
    next_check = Clock::now() + kPeerCheckInterval;
    // Peers are looked at before the last try: what one published before it ended still counts.
    const PeerTrouble trouble = look_at_peers();
    advance();
    if (done()) return;
    std::vector<int> missing;
    const std::string what = describe(missing);
    throw_if_hopeless(trouble, what, missing);
    if (Clock::now() >= next_stopped_check) {
      next_stopped_check = Clock::now() + kStoppedCheckInterval;
      throw_if_stopped(stopped, what, missing);
    }
    if (deadline.passed()) {
      std::vector<std::string> names;
      for (const int r : missing) names.push_back(peers_.who(r));
      std::vector<int> arrived;
      for (int r = 0; r < size(); ++r) {
        if (std::find(missing.begin(), missing.end(), r) == missing.end()) arrived.push_back(r);
      }
      fail(std::make_exception_ptr(
          TimeoutError(str(what, " on ", peers_.self(), " timed out after ", to_string(Clock::now() - began),
                           ": arrived: ", join(arrived, ", "), "; missing: ", join(names, ", "),
                           ". A missing rank is stopped, stuck, or slower than the timeout allows."),
                       missing)));
    }
  }
}

std::string Engine::describe_front(std::uint64_t sequence, std::vector<int>& missing) {
  for (const Operation& operation : operations_) {
    if (operation.sequence() == sequence) {
      // Operations complete in order: the oldest one is what everybody waits for.
      missing = operations_.front().missing();
      return str(describe(operation.request()), ", sequence ", sequence, ", ",
                 to_string(Bytes{operation.request().bytes()}), ",");
    }
  }
  return "operation";
}

void Engine::wait(std::uint64_t sequence, const Wait& wait) {
  std::unique_lock lock(mutex_);
  wait_until(
      lock, [&] { return completed_ > sequence; }, wait,
      [&](std::vector<int>& missing) { return describe_front(sequence, missing); });
}

void Engine::wait(const Message& message, const Wait& wait, bool is_send) {
  std::unique_lock lock(mutex_);
  wait_until(
      lock, [&] { return message.done; }, wait,
      [&](std::vector<int>& missing) {
        missing = {message.peer};
        return str(is_send ? "send to " : "recv from ", peers_.who(message.peer), ", tag ", message.tag, ", ",
                   to_string(Bytes{message.bytes}), ",");
      });
}

int Engine::wait_any_source(int tag, const Wait& wait) {
  int source = -1;
  std::unique_lock lock(mutex_);
  wait_until(
      lock,
      [&] {
        source = messages_.pending_source(tag);
        return source >= 0;
      },
      wait, [&](std::vector<int>&) { return str("recv from any rank, tag ", tag, ","); });
  return source;
}

}  // namespace rondo::shared_memory
