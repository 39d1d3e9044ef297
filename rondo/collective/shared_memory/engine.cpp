#include "rondo/collective/shared_memory/engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"
#include "rondo/collective/forked_child.h"
#include "rondo/collective/shared_memory/engine_visit.h"
#include "rondo/collective/shared_memory/slot_all_reduce.h"

namespace rondo::shared_memory {
namespace {

// With a core for every rank, spinning through a small collective saves the 5 us of a sleep. With fewer
// cores, a spinning rank keeps its peer from running.
constexpr int kOversubscribedSpins = 2;
int spin_limit_for(int ranks) { return ranks <= sysconf(_SC_NPROCESSORS_ONLN) ? 4000 : kOversubscribedSpins; }

// Times for which a sender waits with a message that exceeds the ring while the receiver takes nothing: a
// waiting receiver takes it at once, or wakes up within the longer time.
constexpr auto kReceiverLooks = std::chrono::microseconds(30);
constexpr auto kReceiverWakes = std::chrono::microseconds(200);

}  // namespace

Engine::Engine(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena)
    : peers_(store, options, std::move(arena)),
      messages_(peers_, [this](auto owner, const auto& error) { ended(std::move(owner), error); }),
      spin_limit_(spin_limit_for(options.size)),
      helpers_([this](HelperThread::Control& control) { help(control); }) {}

Engine::~Engine() {
  // In a forked child, a thread that does not exist there may hold the lock.
  if (!process_.is_current()) return;
  const bool thrown = std::uncaught_exceptions() > 0;
  leave(str("group '", options().group_name, "' was destroyed"), thrown ? Duration::zero() : kLeavePatience);
  helpers_.stop();
  // Wakes a helper that sleeps on the futex.
  peers_.own().wakeup.fetch_add(1);
  futex_wake_all(peers_.own().wakeup);
  helpers_.end();
  // Leaks the buffers if a stopped peer may still access them after it is continued.
  if (!unsafe_.empty() && !peers_.hands_off(Duration::zero())) {
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): a process without memory for this ends anyway
    new std::vector<std::shared_ptr<void>>(std::move(unsafe_));
  }
}

void Engine::finish_rendezvous() {
  check_process();
  peers_.finish_rendezvous();
}

void Engine::check_process() const {
  if (process_.is_current()) return;
  throw forked_child_error(options().group_name, peers_.who(rank()));
}

void Engine::check(const CollectiveRequest& request) const {
  if (!supports(request.type, request.reduction) && !averages_integers(request.type, request.reduction)) {
    throw UsageError(str("reduction ", name(request.reduction), " is not defined on ", name(request.type)));
  }
  if (request.root < 0 || request.root >= size()) {
    throw UsageError(
        str("root ", request.root, " is not a rank of group '", options().group_name, "' of ", size()));
  }
  if (request.weighted && (request.reduction != Reduction::average ||
                           request.kind != OperationKind::all_reduce || !is_floating(request.type))) {
    throw UsageError("weights go with an averaging all_reduce of floating types only");
  }
}

// Requires throw_if_failed_anywhere().
void Engine::begin(CollectiveRequest&& request, std::optional<Operation>& operation) {
  operation.emplace(std::move(request), started_, next_ticket_, peers_);
  next_ticket_ = operation->end_ticket();
  ++started_;
}

void Engine::begin_last(CollectiveRequest&& request, std::shared_ptr<OperationOwner> owner,
                        Deadline deadline) {
  throw_if_failed_anywhere();
  PendingOperation& last = add_last();
  begin(std::move(request), last.operation);
  last.owner = std::move(owner);
  last.deadline = deadline;
}

void Engine::check_peer(int peer, bool any) const {
  if ((peer >= 0 && peer < size()) || (any && peer == kAnyRank)) return;
  throw UsageError(str("rank ", peer, " is not a rank of group '", options().group_name, "' of ", size()));
}

std::uint64_t Engine::start(CollectiveRequest request, std::shared_ptr<OperationOwner> owner,
                            Deadline deadline) {
  check(request);
  const Visit visit(*this);
  // The thread that runs the schedule progresses it.
  const bool looked_after = request.by_schedule;
  const std::uint64_t sequence = enqueue(std::move(request), std::move(owner), deadline);
  advance();
  if (anything_under_way() && !looked_after) call_helper();
  return sequence;
}

std::uint64_t Engine::enqueue(CollectiveRequest request, std::shared_ptr<OperationOwner> owner,
                              Deadline deadline) {
  throw_if_failed();
  std::shared_ptr<PieceSizes> sizes;
  if (request.exchanges_sizes) {
    sizes = std::make_shared<PieceSizes>(request, rank());
    enqueue(sizes->request(), sizes, deadline);
  }
  const std::uint64_t sequence = started_ + queued_.size();
  if (sizes != nullptr || !queued_.empty()) {
    queued_.push_back({std::move(request), std::move(sizes), std::move(owner), deadline});
  } else {
    begin_last(std::move(request), std::move(owner), deadline);
  }
  return sequence;
}

// The caller must add an operation, without an exception in between.
Engine::PendingOperation& Engine::add_last() {
  if (spare_.empty()) spare_.emplace_back();
  operations_.splice(operations_.end(), spare_, spare_.begin());
  return operations_.back();
}

std::shared_ptr<OperationOwner> Engine::remove_first() {
  PendingOperation& first = operations_.front();
  first.operation.reset();
  first.deadline = Deadline::never();
  spare_.splice(spare_.begin(), operations_, operations_.begin());
  return std::move(first.owner);
}

// Begins queued operations up to the first one with unknown sizes.
void Engine::begin_queued() {
  while (!queued_.empty()) {
    Queued& next = queued_.front();
    if (next.sizes != nullptr) {
      if (!next.sizes->known()) return;
      next.sizes->complete(next.request);
    }
    begin_last(std::move(next.request), std::move(next.owner), next.deadline);
    queued_.pop_front();
  }
}

void Engine::run(CollectiveRequest&& request, Duration timeout) {
  check(request);
  Visit visit(*this);
  std::uint64_t sequence = started_;
  if (operations_.empty() && !request.exchanges_sizes) {
    // A collective that ends while it spins is never queued and never reads the clock: both take as long as
    // the transfer of a cache line between two cores.
    throw_if_failed_anywhere();
    const bool in_slots = is_slot_all_reduce(request) && next_slot_is_free();
    if (in_slots && reduce_in_slots(request)) return;
    std::optional<Operation> operation;
    begin(std::move(request), operation);
    if (in_slots) {
      operation->continue_published();
    } else if (spin_through(*operation)) {
      return;
    }
    add_last().operation = std::move(operation);
  } else {
    sequence = enqueue(std::move(request), nullptr, Deadline::never());
  }
  wait_until(
      visit, [&] { return completed_ > sequence; }, {Deadline::after(timeout), nullptr},
      [&](std::vector<int>& missing) { return describe_collective(sequence, missing); });
}

bool Engine::next_slot_is_free() {
  const std::uint64_t end = slot_end_ticket_[started_ % kSlots];
  return end <= known_least_consumed_ || end <= least_consumed();
}

// Runs an all_reduce whose data fits the free slot, with no other operation in flight. Returns false if it
// has to be waited for, or fails: an Operation continues it.
bool Engine::reduce_in_slots(const CollectiveRequest& request) {
  const std::uint64_t ticket = next_ticket_ + 1;
  slot_end_ticket_[started_ % kSlots] = ticket;
  if (!SlotAllReduce(request, started_, peers_).finish(ticket, spin_limit_)) return false;
  next_ticket_ = ticket;
  ++started_;
  ++completed_;
  peers_.prefetch_slot(started_ + 1);
  return true;
}

// Runs the only operation in flight, which is not in the queue, without the work of step() and advance() for
// others. Returns false if it has to be waited for.
bool Engine::spin_through(Operation& operation) {
  try {
    std::uint64_t& slot_end = slot_end_ticket_[operation.sequence() % kSlots];
    if (!operation.describe(slot_end, known_least_consumed_)) return false;
    slot_end = operation.end_ticket();
    // If all peers arrived first, a small operation ends before the first notification, whose fence waits
    // until the slot has been written. A peer that sleeps by then waits no longer for the notification than
    // for the operation.
    bool published = true;
    if (!operation.small()) peers_.notify_peers();
    for (int i = 0; i <= spin_limit_; ++i) {
      bool moved = !operation.fully_published() && operation.publish(least_consumed());
      moved |= operation.work();
      moved |= operation.take();
      if (moved || published) peers_.notify_peers();
      published = false;
      if (operation.complete()) {
        ++completed_;
        peers_.prefetch_slot(started_ + 1);
        return true;
      }
      if (!moved && i >= kImmediateSpins) relax_processor();
    }
    return false;
  } catch (...) {
    fail(std::current_exception());
  }
}

std::uint64_t Engine::least_consumed() {
  std::uint64_t least = peers_.own().consumed.load();
  for (int r = 0; r < peers_.size(); ++r) least = std::min(least, peers_.segment(r).consumed.load());
  known_least_consumed_ = least;
  return least;
}

bool Engine::step() {
  bool moved = false;
  // Checks the last value that was read first: it is cheap and usually suffices.
  std::uint64_t least = known_least_consumed_;
  bool refreshed = false;
  const auto refresh = [&] {
    if (!refreshed) least = least_consumed();
    refreshed = true;
  };
  for (PendingOperation& under_way : operations_) {
    Operation& operation = *under_way.operation;
    if (operation.described()) continue;
    const std::uint64_t slot_free = slot_end_ticket_[operation.sequence() % kSlots];
    if (!operation.describe(slot_free, least)) {
      refresh();
      if (!operation.describe(slot_free, least)) break;
    }
    slot_end_ticket_[operation.sequence() % kSlots] = operation.end_ticket();
    moved = true;
  }
  for (PendingOperation& under_way : operations_) {
    Operation& operation = *under_way.operation;
    if (operation.fully_published()) continue;
    refresh();
    moved |= operation.publish(least);
    if (!operation.fully_published()) break;
  }
  for (PendingOperation& under_way : operations_) {
    Operation& operation = *under_way.operation;
    if (operation.fully_reduced()) continue;
    moved |= operation.work();
    if (!operation.fully_reduced()) break;
  }
  while (!operations_.empty()) {
    PendingOperation& front = operations_.front();
    moved |= front.operation->take();
    if (!front.operation->complete()) break;
    std::shared_ptr<OperationOwner> owner = remove_first();
    ++completed_;
    moved = true;
    if (owner != nullptr) ended(std::move(owner), nullptr);
  }
  begin_queued();
  return moved;
}

bool Engine::advance() {
  try {
    bool moved = messages_.progress();
    while (!operations_.empty() && step()) moved = true;
    if (moved) peers_.notify_peers();
    return moved;
  } catch (...) {
    fail(std::current_exception());
  }
}

void Engine::ended(std::shared_ptr<OperationOwner> owner, const std::exception_ptr& error) {
  owner->finish(error);
  unannounced_.push_back(std::move(owner));
}

std::shared_ptr<Announcements> Engine::share_unannounced() {
  auto batch = std::make_shared<Announcements>(std::exchange(unannounced_, {}));
  batches_.push_back(batch);
  return batch;
}

bool Engine::anything_to_announce() {
  std::erase_if(batches_, [](const auto& batch) { return batch->empty(); });
  return !unannounced_.empty() || !batches_.empty();
}

void Engine::progress() {
  const Visit visit(*this);
  throw_if_failed();
  advance();
}

bool Engine::completed(std::uint64_t sequence) {
  const Visit visit(*this);
  if (completed_ > sequence) return true;
  throw_if_failed();
  advance();
  return completed_ > sequence;
}

bool Engine::completed(const Message& message) {
  const Visit visit(*this);
  if (message.done) return true;
  throw_if_failed();
  advance();
  return message.done;
}

bool Engine::agreed(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (completed_ > sequence) return true;
  throw_if_failed();
  if (operations_.empty() || operations_.front().operation->sequence() != sequence) return false;
  Operation& operation = *operations_.front().operation;
  if (!operation.described()) {
    std::uint64_t& slot_end = slot_end_ticket_[sequence % kSlots];
    if (!operation.describe(slot_end, least_consumed())) return false;
    slot_end = operation.end_ticket();
    peers_.notify_peers();
  }
  operation.work();
  operation.take();
  if (!operation.complete()) return false;
  remove_first();
  ++completed_;
  peers_.notify_peers();
  return true;
}

void Engine::wait_agreed(std::uint64_t sequence, const Wait& wait) {
  for (int i = 0; i < spin_limit_; ++i) {
    if (agreed(sequence)) return;
    relax_processor();
  }
  const Deadline deadline = wait.deadline.is_never() ? Deadline::after(options().timeout) : wait.deadline;
  const TimePoint began = Clock::now();
  RankSegment& own = peers_.own();
  while (!agreed(sequence)) {
    throw_if_broken();
    if (wait.cancel != nullptr && wait.cancel->cancelled())
      throw CancelledError("a scheduled collective was cancelled");
    if (deadline.passed()) {
      const std::lock_guard lock(mutex_);
      std::vector<int> missing;
      const std::string what = describe_collective(sequence, missing);
      throw late(what, to_string(Clock::now() - began), missing);
    }
    if (Clock::now() - began < kYieldTime) {
      sched_yield();
      continue;
    }
    {
      // The helper checks that the peers are alive, and announces ended operations on its own thread: an
      // announcement on this thread could wait for the schedule.
      const std::lock_guard lock(mutex_);
      call_helper();
    }
    // As in wait_until: peers wake this rank after they publish and find `sleeping` set; checking again in
    // between closes the race.
    const std::uint32_t wakeup = own.wakeup.load();
    own.sleeping.fetch_add(1);
    if (!agreed(sequence))
      futex_wait(own.wakeup, wakeup, std::min<Duration>(kSleepTime, deadline.remaining()));
    own.sleeping.fetch_sub(1);
  }
}

std::uint64_t Engine::sequence() {
  const std::lock_guard lock(mutex_);
  return started_ + queued_.size();
}

std::shared_ptr<Message> Engine::start_send(Message message) {
  check_peer(message.peer, false);
  const Visit visit(*this);
  throw_if_failed_anywhere();
  auto shared = messages_.send(std::move(message));
  advance();
  // Otherwise a message larger than its ring would wait a millisecond for the helper thread, although its
  // receiver waits.
  TimePoint moved = Clock::now();
  while (!shared->done && spin_limit_ > kOversubscribedSpins) {
    const bool sleeps = peers_.segment(shared->peer).sleeping.load() > 0;
    if (advance()) {
      moved = Clock::now();
    } else if (Clock::now() - moved > (sleeps ? kReceiverWakes : kReceiverLooks)) {
      break;
    }
    relax_processor();
  }
  if (anything_under_way()) call_helper();
  return shared;
}

std::shared_ptr<Message> Engine::start_receive(Message message) {
  check_peer(message.peer, true);
  const Visit visit(*this);
  throw_if_failed_anywhere();
  auto shared = messages_.receive(std::move(message));
  advance();
  if (anything_under_way()) call_helper();
  return shared;
}

void Engine::limit(const std::shared_ptr<Message>& message, Deadline deadline) {
  const Visit visit(*this);
  message->deadline = deadline;
}

void Engine::throw_if_failed() const {
  if (failure_) std::rethrow_exception(failure_);
}

template <class Done, class Describe>
void Engine::wait_until(Visit& visit, Done done, const Wait& wait, Describe describe) {
  if (done()) return;
  throw_if_failed();
  for (int i = 0; i < spin_limit_; ++i) {
    advance();
    if (done()) return;
    relax_processor();
  }
  const Waiting waiting(waiting_);
  const Deadline deadline = wait.deadline.is_never() ? Deadline::after(options().timeout) : wait.deadline;
  const TimePoint began = Clock::now();
  TimePoint next_check = began + kPeerCheckInterval;
  TimePoint next_stopped_check = began + kStoppedCheckInterval;
  StoppedCounts stopped(static_cast<std::size_t>(size()));
  RankSegment& own = peers_.own();
  while (true) {
    if (!unannounced_.empty()) {
      // An announced owner may wait for an operation, which the helper then progresses, because this thread
      // no longer counts as waiting.
      --waiting_;
      visit.announce();
      ++waiting_;
    }
    const TimePoint now = Clock::now();
    const bool may_sleep = now - began > kYieldTime;
    if (!may_sleep) {
      visit.without_lock([] { sched_yield(); });
    } else {
      // Peers wake this rank after they publish and find `sleeping` set; checking again in between closes the
      // race.
      const std::uint32_t wakeup = own.wakeup.load();
      own.sleeping.fetch_add(1);
      const bool moved = done() || failure_ != nullptr || advance();
      if (!moved && !done()) {
        visit.without_lock(
            [&] { futex_wait(own.wakeup, wakeup, std::min<Duration>(kSleepTime, deadline.remaining())); });
      }
      own.sleeping.fetch_sub(1);
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
    // Checks the peers before the last attempt: data that a peer published before it ended still counts.
    const PeerTrouble trouble = look_at_peers();
    drain_received(trouble);
    if (done()) return;
    std::vector<int> missing;
    const std::string what = describe(missing);
    throw_if_peer_failed(trouble, what, missing);
    if (Clock::now() >= next_stopped_check) {
      next_stopped_check = next_look_for_stopped(next_stopped_check);
      throw_if_stopped(stopped, what, missing);
    }
    if (deadline.passed()) time_out(what, to_string(Clock::now() - began), missing);
  }
}

void Engine::wait(std::uint64_t sequence, const Wait& wait) {
  Visit visit(*this);
  wait_until(
      visit, [&] { return completed_ > sequence; }, wait,
      [&](std::vector<int>& missing) { return describe_collective(sequence, missing); });
}

void Engine::wait(const Message& message, const Wait& wait) {
  Visit visit(*this);
  wait_until(
      visit, [&] { return message.done; }, wait,
      [&](std::vector<int>& missing) { return describe_message(message, missing); });
  if (message.error) std::rethrow_exception(message.error);
}

// Does not throw: a leaving caller cannot handle an error.
void Engine::leave(const std::string& reason, Duration patience) {
  Visit visit(*this);
  if (failure_) return;
  const std::exception_ptr closed = std::make_exception_ptr(UsageError(reason));
  messages_.end_receives(closed);
  try {
    const Wait wait{Deadline::after(std::min(patience, options().timeout)), nullptr};
    wait_until(
        visit, [&] { return !anything_under_way(); }, wait,
        [&](std::vector<int>& missing) {
          const std::string what =
              operations_.empty() ? std::string("what was sent")
                                  : describe_collective(operations_.front().operation->sequence(), missing);
          return str(what, " in flight when the rank left the group,");
        });
    failure_ = closed;
  } catch (const std::exception&) {
    // The failure has been reported to the operations and the peers.
  }
}

}  // namespace rondo::shared_memory
