#include "rondo/parallel/schedule/communication_queue.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <atomic>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/memory/scope.h"

namespace rondo {
namespace {

// Time for other ranks to receive the message that this rank stops, or for the leader to announce it.
constexpr auto kStopPatience = std::chrono::seconds(2);

std::string name_of(const CommunicationSegment& segment) {
  return segment.describe ? segment.describe() : str(segment.collective, " of unit '", segment.unit, "'");
}

// Returns the exception being handled; an exception that is not rondo's becomes an Error that names the
// segment.
std::exception_ptr named_failure(const CommunicationSegment& segment, const char* how) {
  try {
    throw;
  } catch (const Error&) {
    return std::current_exception();
  } catch (const std::exception& error) {
    return std::make_exception_ptr(Error(str(name_of(segment), " ", how, ": ", plain_message(error))));
  }
}

using EndTime = std::shared_ptr<std::atomic<std::int64_t>>;

// Records the time at which the work ends, if the engine reports it on its own thread. Returns null if it
// does not. On a device, streams do the work and the callback would run at once.
EndTime note_end(c10d::Work& work) {
  try {
    const c10::intrusive_ptr<c10::ivalue::Future> future = work.getFuture();
    if (!future || !future->devices().empty()) return nullptr;
    auto ended_ns = std::make_shared<std::atomic<std::int64_t>>(0);
    future->addCallback([ended_ns](c10::ivalue::Future&) { ended_ns->store(monotonic_ns()); });
    return ended_ns;
  } catch (const c10::Error&) {
    return nullptr;  // an engine without futures
  }
}

}  // namespace

struct CommunicationQueue::Entry {
  Ticket ticket = 0;
  CommunicationSegment segment;
  TraceSpan span;
  BucketFuture future;      // set before the entry is in running_
  BucketFuture::Work work;  // first message; constant once set
  std::mutex finishing;     // held by the caller that waits for the future; acquired before mutex_
  // position in the order is fixed; this and the members below are protected by mutex_
  bool has_order = false;
  bool started = false;
  bool finished = false;
  bool awaited = false;      // a call waits for the segment
  EndTime told_ns;           // 0 until the engine has reported the end; null if it does not report
  std::int64_t seen_ns = 0;  // 0 until the end was observed

  // Returns true if all messages have completed. Requires a queue without a leader.
  bool arrived() { return !future.has_round() && future.arrived(); }
  void note_wait(std::int64_t begin_ns, std::int64_t end_ns) {
    if (span.waited_ns == 0) span.waited_ns = begin_ns;
    *span.exposed_ns += end_ns - begin_ns;
  }
};

CommunicationQueue::CommunicationQueue(std::unique_ptr<SchedulePolicy> policy, Bytes in_flight_limit,
                                       std::unique_ptr<Leader> leader, bool engine_reports_completion)
    : policy_(std::move(policy)),
      in_flight_limit_(in_flight_limit),
      leader_(std::move(leader)),
      engine_tells_(engine_reports_completion) {
  if (!leader_) return;
  thread_ = replica_thread([this] {
    try {
      leader_->leads() ? lead() : follow();
    } catch (...) {
      fail(std::current_exception());
    }
    if (leader_->leads()) leader_->stop();
    const std::lock_guard lock(mutex_);
    thread_ended_ = true;
    changed_.notify_all();
  });
}

CommunicationQueue::~CommunicationQueue() {
  bool ended = false;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    ended = !thread_.joinable() || changed_.wait_for(lock, kStopPatience, [&] { return thread_ended_; });
  }
  if (!ended) leader_->give_up();
  if (thread_.joinable()) thread_.join();
}

CommunicationQueue::Ticket CommunicationQueue::submit(CommunicationSegment segment) {
  const auto entry = std::make_shared<Entry>();
  TraceSpan& span = entry->span;
  span.name = segment.collective;
  span.lane = Lane::communication;
  span.unit = segment.unit;
  span.bucket = static_cast<std::int64_t>(segment.index);
  span.bytes = segment.bytes.count;
  span.queued_ns = segment.ready_ns > 0 ? segment.ready_ns : monotonic_ns();
  span.exposed_ns = 0;
  entry->segment = std::move(segment);
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  entry->ticket = first_ + open_.size();
  open_.push_back(entry);
  waiting_.push_back(entry);
  if (leader_) {
    changed_.notify_all();
  } else {
    release();
    move_on(/*waits=*/false);
  }
  return entry->ticket;
}

CommunicationQueue::EntryPointer CommunicationQueue::find(Ticket ticket) const {
  return ticket < first_ || ticket - first_ >= open_.size() ? nullptr : open_[ticket - first_];
}

// Returns the segment that must finish before `entry`, or null if it is finished.
CommunicationQueue::EntryPointer CommunicationQueue::before(const Entry& entry) const {
  return entry.segment.after ? find(*entry.segment.after) : nullptr;
}

// The lock must be held here and in all functions down to wait().
void CommunicationQueue::release() {
  for (std::size_t released = policy_->release(waiting_.size()); released > 0 && has_next(); --released)
    ordered_.push_back(take_next());
}

// Arrival times of messages differ between ranks. They may decide when the next start happens, but never
// which start is next: a turn is begun only by a segment or by start_all().
void CommunicationQueue::move_on(bool waits) {
  for (;;) {
    if (!turn_.empty()) {
      if (!waits && !turn_.front()->future.arrived()) return;
      start_round(turn_.front());
      turn_.pop_front();
    } else if (!ordered_.empty()) {
      begin_turn();
      start(ordered_.front());
      ordered_.pop_front();
    } else {
      if (!waits) return;
      begin_turn();
      if (turn_.empty()) return;
    }
  }
}

void CommunicationQueue::begin_turn() {
  for (const EntryPointer& entry : running_) {
    if (entry->future.has_round()) turn_.push_back(entry);
  }
}

bool CommunicationQueue::has_room() const {
  return in_flight_limit_.count == 0 || under_way_.count == 0 || under_way_ < in_flight_limit_;
}

// A plan may defer a segment, and with it the segments that depend on it.
bool CommunicationQueue::is_released(const Entry& entry) const {
  if (!entry.awaited && !policy_->allows(entry.segment)) return false;
  const EntryPointer first = before(entry);
  return !first || first->has_order || is_released(*first);
}

// Without a leader, the predecessor of `entry` must be ordered, and is waited for when `entry` starts,
// because the time at which it finishes differs between ranks.
bool CommunicationQueue::may_start(const Entry& entry) const {
  if (!is_released(entry)) return false;
  const EntryPointer first = before(entry);
  return !first || (!leader_ && first->has_order);
}

bool CommunicationQueue::has_next() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const EntryPointer& entry) { return may_start(*entry); });
}

// Requires has_next().
CommunicationQueue::EntryPointer CommunicationQueue::take_next() {
  std::vector<const CommunicationSegment*> segments;
  std::vector<Ticket> tickets;
  for (const EntryPointer& entry : waiting_) {
    if (!may_start(*entry)) continue;
    segments.push_back(&entry->segment);
    tickets.push_back(entry->ticket);
  }
  return take(tickets[policy_->next(segments)]);
}

CommunicationQueue::EntryPointer CommunicationQueue::take(Ticket ticket) {
  const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const EntryPointer& entry) { return entry->ticket == ticket; });
  if (place == waiting_.end()) return nullptr;
  EntryPointer entry = *place;
  waiting_.erase(place);
  entry->has_order = true;
  return entry;
}

// Called under the lock, because starts have one order on all ranks.
void CommunicationQueue::start(const EntryPointer& entry) {
  entry->span.begin_ns = monotonic_ns();
  // Attributes the engine's own message buffer, which the engine may free shortly after the message has
  // completed.
  const MemoryScope scope(MemoryCategory::communication, entry->segment.unit);
  try {
    const EntryPointer first = before(*entry);
    if (first) first->future.wait();  // with a leader the first message has finished
    entry->future = entry->segment.start();
    entry->segment.start = nullptr;  // releases the function; the future keeps the references that it needs
    entry->work = entry->future.message();
    if (leader_ && entry->future.has_round())
      throw UsageError(str(entry->segment.collective, " has several rounds, which rank 0 cannot order"));
    if (engine_tells_ && entry->work) entry->told_ns = note_end(*entry->work);
  } catch (...) {
    failure_ = named_failure(entry->segment, "could not be started");
    std::rethrow_exception(failure_);
  }
  entry->started = true;
  under_way_ = under_way_ + entry->segment.bytes;
  running_.push_back(entry);
  changed_.notify_all();
}

void CommunicationQueue::start_round(const EntryPointer& entry) {
  const MemoryScope scope(MemoryCategory::communication, entry->segment.unit);
  try {
    entry->future.start_round(entry->segment.timeout);
  } catch (...) {
    failure_ = named_failure(entry->segment, "failed");
    std::rethrow_exception(failure_);
  }
}

void CommunicationQueue::poll() {
  const std::lock_guard lock(mutex_);
  move_on(/*waits=*/false);
  for (; seen_ < running_.size() && running_[seen_]->arrived(); ++seen_)
    running_[seen_]->seen_ns = monotonic_ns();
}

void CommunicationQueue::start_all() {
  const std::lock_guard lock(mutex_);
  move_on(/*waits=*/true);
}

at::Tensor CommunicationQueue::wait(Ticket ticket) {
  EntryPointer entry;
  {
    std::unique_lock lock(mutex_);
    entry = find(ticket);
    if (!entry) return {};
    // The predecessor of a segment must start first.
    for (EntryPointer needed = entry; needed; needed = before(*needed)) needed->awaited = true;
    if (!leader_) {
      while (!entry->has_order) ordered_.push_back(take_next());
      move_on(/*waits=*/true);
    } else if (!entry->started) {
      changed_.notify_all();
      const std::int64_t begin = monotonic_ns();
      changed_.wait(lock, [&] { return entry->started || failure_ || leader_stopped_; });
      entry->note_wait(begin, monotonic_ns());
    }
    check_startable(*entry);
  }
  // No other call waits for the predecessor of this segment.
  if (entry->segment.after) wait(*entry->segment.after);
  return complete(entry, /*exposed=*/true);
}

// Reports a leader that failed or whose rank left early. It stops its followers in an orderly way: segments
// that it has ordered finish, the others never start.
void CommunicationQueue::check_startable(const Entry& entry) const {
  if (failure_) std::rethrow_exception(failure_);
  if (entry.started || !leader_stopped_) return;
  // Rank 0 may have seen a failure in a group that this rank is not in.
  std::rethrow_exception(leader_->cause_of(std::make_exception_ptr(PeerLostError(
      str(name_of(entry.segment), " cannot start: rank 0, which orders the starts, has ended its queue"),
      {0}))));
}

bool CommunicationQueue::finished(Ticket ticket) {
  EntryPointer entry;
  {
    const std::lock_guard lock(mutex_);
    entry = find(ticket);
    if (!entry) return true;
    check_startable(*entry);
    if (!entry->started) return false;
    // With a leader, the queue's thread may be waiting for the future, which then has a single message.
    if (leader_ ? entry->work && !entry->work->isCompleted() : !entry->arrived()) return false;
  }
  if (entry->segment.after && !finished(*entry->segment.after)) return false;
  complete(entry, /*exposed=*/false);
  return true;
}

void CommunicationQueue::reach(std::int64_t slot) {
  const std::lock_guard lock(mutex_);
  policy_->reach(slot);
  if (leader_) {
    changed_.notify_all();
  } else if (!failure_) {
    release();
    move_on(/*waits=*/false);
  }
}

at::Tensor CommunicationQueue::complete(const EntryPointer& entry, bool exposed) {
  const std::lock_guard finishing(entry->finishing);
  {
    const std::lock_guard lock(mutex_);
    if (entry->finished) return {};
  }
  const std::int64_t begin = monotonic_ns();
  at::Tensor result;
  try {
    result = entry->future.wait(entry->segment.timeout);
  } catch (...) {
    const std::exception_ptr failure = named_failure(entry->segment, "failed");
    fail(failure);
    std::rethrow_exception(failure);
  }
  const std::int64_t end = monotonic_ns();
  {
    const std::lock_guard lock(mutex_);
    entry->finished = true;
    const std::int64_t told = entry->told_ns ? entry->told_ns->load() : entry->seen_ns;
    entry->span.end_ns = told == 0 ? end : std::max(told, entry->span.begin_ns);
    if (exposed) entry->note_wait(begin, end);
    under_way_.count -= entry->segment.bytes.count;
    open_[entry->ticket - first_] = nullptr;
    retire();
  }
  changed_.notify_all();
  return result;
}

void CommunicationQueue::retire() {
  for (; !running_.empty() && running_.front()->finished; running_.pop_front()) {
    spans_.push_back(std::move(running_.front()->span));
    if (seen_ > 0) --seen_;
  }
  for (; !open_.empty() && !open_.front(); open_.pop_front()) ++first_;
}

std::vector<TraceSpan> CommunicationQueue::take_spans() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

void CommunicationQueue::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  for (const EntryPointer& entry : running_) entry->future.abandon();
  first_ += open_.size();
  open_.clear();
  waiting_.clear();
  ordered_.clear();
  turn_.clear();
  running_.clear();
  spans_.clear();
  seen_ = 0;
  under_way_ = {};
  failure_ = nullptr;
}

void CommunicationQueue::lead() {
  for (;;) {
    EntryPointer oldest;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stopping_ || failure_ ||
               std::any_of(waiting_.begin(), waiting_.end(),
                           [&](const EntryPointer& entry) { return is_released(*entry); });
      });
      if (stopping_ || failure_) return;
      if (has_room() && has_next()) {
        const EntryPointer entry = take_next();
        lock.unlock();
        leader_->publish(entry->ticket);
        lock.lock();
        start(entry);
        continue;
      }
      // At least one segment is running: otherwise there would be room, and a segment that can start.
      const auto place = std::find_if(running_.begin(), running_.end(),
                                      [](const EntryPointer& entry) { return !entry->finished; });
      oldest = *place;
    }
    complete(oldest, /*exposed=*/false);
  }
}

void CommunicationQueue::follow() {
  for (;;) {
    const std::optional<std::uint64_t> ticket = leader_->next();
    std::unique_lock lock(mutex_);
    if (!ticket) {
      leader_stopped_ = true;
      changed_.notify_all();
      return;
    }
    EntryPointer entry;
    changed_.wait(lock, [&] {
      if (!entry) entry = take(*ticket);
      return entry || stopping_ || failure_;
    });
    if (!entry) return;
    start(entry);
  }
}

void CommunicationQueue::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

}  // namespace rondo
