#include "rondo/parallel/schedule/block_scheduler.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <atomic>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

// What an engine that is not rondo's has thrown, with the block named.
std::exception_ptr named_failure(const CommunicationBlock& block, const char* how,
                                 const std::exception& error) {
  return std::make_exception_ptr(
      Error(str(block.collective, " of unit '", block.unit, "' ", how, ": ", error.what())));
}

// Notes when the work ends, where its engine tells on a thread of its own; on a device streams do the work,
// and there it would tell at once.
void note_end(c10d::Work& work, const std::shared_ptr<std::atomic<std::int64_t>>& ended_ns) {
  try {
    const c10::intrusive_ptr<c10::ivalue::Future> future = work.getFuture();
    if (!future || !future->devices().empty()) return;
    future->addCallback([ended_ns](c10::ivalue::Future&) { ended_ns->store(monotonic_ns()); });
  } catch (const c10::Error&) {
    return;  // an engine without futures
  }
}

}  // namespace

struct BlockScheduler::Entry {
  Ticket ticket = 0;
  CommunicationBlock block;
  BlockRecord record;
  c10::intrusive_ptr<c10d::Work> work;  // set before it is in running_, then constant
  std::mutex finishing;                 // held by the one who waits for the work; taken before mutex_
  bool finished = false;                // protected by mutex_
  bool awaited = false;                 // likewise: somebody needs it now
  // 0 until the engine has told.
  std::shared_ptr<std::atomic<std::int64_t>> ended_ns = std::make_shared<std::atomic<std::int64_t>>(0);

  void note_wait(std::int64_t begin_ns, std::int64_t end_ns) {
    if (record.waited_ns == 0) record.waited_ns = begin_ns;
    record.exposed_ns += end_ns - begin_ns;
  }
};

BlockScheduler::BlockScheduler(std::unique_ptr<SchedulePolicy> policy, Bytes credit,
                               std::unique_ptr<Leader> leader)
    : policy_(std::move(policy)), credit_(credit), leader_(std::move(leader)) {
  if (!leader_) return;
  thread_ = std::thread([this] {
    try {
      leader_->leads() ? lead() : follow();
    } catch (...) {
      fail(std::current_exception());
    }
    if (leader_->leads()) leader_->stop();
  });
}

BlockScheduler::~BlockScheduler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

BlockScheduler::Ticket BlockScheduler::submit(CommunicationBlock block) {
  const auto entry = std::make_shared<Entry>();
  entry->record = {block.collective, block.unit, block.index, block.bytes, monotonic_ns()};
  entry->block = std::move(block);
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  entry->ticket = next_ticket_++;
  open_.emplace(entry->ticket, entry);
  waiting_.push_back(entry);
  if (leader_) {
    changed_.notify_all();
  } else {
    start_released();
  }
  return entry->ticket;
}

// Requires the lock.
void BlockScheduler::start_released() {
  for (std::size_t released = policy_->release(waiting_.size()); released > 0 && has_next(); --released) {
    start(take_next());
  }
}

bool BlockScheduler::has_room() const {
  return credit_.count == 0 || under_way_.count == 0 || under_way_ < credit_;
}

// A plan may keep blocks back, and with them those that come after.
bool BlockScheduler::is_released(const EntryPointer& entry) const {
  if (!entry->awaited && !policy_->allows(entry->block)) return false;
  const auto before = entry->block.after ? open_.find(*entry->block.after) : open_.end();
  return before == open_.end() || before->second->work || is_released(before->second);
}

// Without a leader what a block comes after is waited for when it starts: whether it is finished by itself is
// known to one rank only.
bool BlockScheduler::may_start(const EntryPointer& entry) const {
  if (!is_released(entry)) return false;
  return !leader_ || !entry->block.after || !open_.contains(*entry->block.after);
}

bool BlockScheduler::has_next() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const EntryPointer& entry) { return may_start(entry); });
}

// Requires has_next().
BlockScheduler::EntryPointer BlockScheduler::take_next() {
  std::vector<const CommunicationBlock*> blocks;
  std::vector<Ticket> tickets;
  for (const EntryPointer& entry : waiting_) {
    if (!may_start(entry)) continue;
    blocks.push_back(&entry->block);
    tickets.push_back(entry->ticket);
  }
  return take(tickets[policy_->next(blocks)]);
}

BlockScheduler::EntryPointer BlockScheduler::take(Ticket ticket) {
  const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const EntryPointer& entry) { return entry->ticket == ticket; });
  if (place == waiting_.end()) return nullptr;
  EntryPointer entry = *place;
  waiting_.erase(place);
  return entry;
}

// Requires the lock: starts are in one order everywhere.
void BlockScheduler::start(const EntryPointer& entry) {
  entry->record.started_ns = monotonic_ns();
  try {
    if (entry->block.after) {
      const auto before = open_.find(*entry->block.after);
      if (before != open_.end()) before->second->work->wait();
    }
    entry->work = entry->block.start();
    entry->block.start = nullptr;  // the work holds what it needs
    note_end(*entry->work, entry->ended_ns);
  } catch (const Error&) {
    failure_ = std::current_exception();
    throw;
  } catch (const std::exception& error) {
    failure_ = named_failure(entry->block, "could not be started", error);
    std::rethrow_exception(failure_);
  }
  under_way_ = under_way_ + entry->block.bytes;
  running_.push_back(entry);
  changed_.notify_all();
}

void BlockScheduler::start_until(Ticket ticket) {
  while (std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const EntryPointer& entry) { return entry->ticket == ticket; })) {
    start(take_next());
  }
}

void BlockScheduler::wait(Ticket ticket) {
  EntryPointer entry;
  {
    std::unique_lock lock(mutex_);
    const auto open = open_.find(ticket);
    if (open == open_.end()) return;
    entry = open->second;
    // What it comes after has to go first.
    for (EntryPointer needed = entry; needed;) {
      needed->awaited = true;
      const auto before = needed->block.after ? open_.find(*needed->block.after) : open_.end();
      needed = before == open_.end() ? nullptr : before->second;
    }
    if (!leader_) {
      start_until(ticket);
    } else if (!entry->work) {
      changed_.notify_all();
      const std::int64_t begin = monotonic_ns();
      changed_.wait(lock, [&] { return entry->work || failure_; });
      entry->note_wait(begin, monotonic_ns());
    }
    if (failure_) std::rethrow_exception(failure_);
  }
  // Nobody else waits for what it came after.
  if (entry->block.after) wait(*entry->block.after);
  complete(entry, /*exposed=*/true);
}

bool BlockScheduler::finished(Ticket ticket) {
  EntryPointer entry;
  {
    const std::lock_guard lock(mutex_);
    const auto open = open_.find(ticket);
    if (open == open_.end()) return true;
    entry = open->second;
    if (failure_) std::rethrow_exception(failure_);
    if (!entry->work || !entry->work->isCompleted()) return false;
  }
  if (entry->block.after && !finished(*entry->block.after)) return false;
  complete(entry, /*exposed=*/false);
  return true;
}

void BlockScheduler::reach(std::int64_t slot) {
  const std::lock_guard lock(mutex_);
  policy_->reach(slot);
  if (leader_) {
    changed_.notify_all();
  } else if (!failure_) {
    start_released();
  }
}

void BlockScheduler::complete(const EntryPointer& entry, bool exposed) {
  const std::lock_guard finishing(entry->finishing);
  {
    const std::lock_guard lock(mutex_);
    if (entry->finished) return;
  }
  const std::int64_t begin = monotonic_ns();
  try {
    if (!entry->work->wait()) throw Error("the operation was aborted");
  } catch (const Error&) {
    fail(std::current_exception());
    throw;
  } catch (const std::exception& error) {
    const std::exception_ptr failure = named_failure(entry->block, "failed", error);
    fail(failure);
    std::rethrow_exception(failure);
  }
  const std::int64_t end = monotonic_ns();
  {
    const std::lock_guard lock(mutex_);
    entry->finished = true;
    const std::int64_t ended = entry->ended_ns->load();
    entry->record.finished_ns = ended == 0 ? end : std::max(ended, entry->record.started_ns);
    if (exposed) entry->note_wait(begin, end);
    under_way_.count -= entry->block.bytes.count;
    open_.erase(entry->ticket);
    retire();
  }
  changed_.notify_all();
}

void BlockScheduler::retire() {
  while (!running_.empty() && running_.front()->finished) {
    records_.push_back(running_.front()->record);
    running_.pop_front();
  }
}

std::vector<BlockRecord> BlockScheduler::take_records() {
  const std::lock_guard lock(mutex_);
  return std::exchange(records_, {});
}

void BlockScheduler::lead() {
  for (;;) {
    EntryPointer oldest;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stopping_ || failure_ ||
               std::any_of(waiting_.begin(), waiting_.end(),
                           [&](const EntryPointer& entry) { return is_released(entry); });
      });
      if (stopping_ || failure_) return;
      if (has_room() && has_next()) {
        const EntryPointer entry = take_next();
        lock.unlock();
        leader_->tell(entry->ticket);
        lock.lock();
        start(entry);
        continue;
      }
      // Something is under way: what waits has no room, or comes after another block.
      const auto place = std::find_if(running_.begin(), running_.end(),
                                      [](const EntryPointer& entry) { return !entry->finished; });
      oldest = *place;
    }
    complete(oldest, /*exposed=*/false);
  }
}

void BlockScheduler::follow() {
  for (;;) {
    const std::optional<std::uint64_t> ticket = leader_->hear();
    if (!ticket) return;
    std::unique_lock lock(mutex_);
    EntryPointer entry;
    changed_.wait(lock, [&] {
      if (!entry) entry = take(*ticket);
      return entry || stopping_ || failure_;
    });
    if (!entry) return;
    start(entry);
  }
}

void BlockScheduler::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

}  // namespace rondo
