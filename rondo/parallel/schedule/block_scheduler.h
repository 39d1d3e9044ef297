#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/parallel/schedule/leader.h"
#include "rondo/parallel/schedule/policy.h"

namespace rondo {

// Queues blocks of communication and starts them in an order that a policy chooses, the same on all ranks.
// Whoever needs a block's result waits for that block and no other.
//
// Ranks submit the same blocks, and wait for the same ones, in the same order. There are two ways to one
// order of starts.
//
// With a Leader the first rank starts what its policy picks whenever there is room, and tells the others the
// number of each block; they start the same. A thread of the scheduler's own does it, so that a block goes
// out in the middle of a computation. For engines that work in the background.
//
// Without one, starts happen inside submit() and wait() and follow from these calls alone, so all ranks find
// the same order by themselves. `credit` is then not looked at, since when a block finishes is known to one
// rank only. For the native engine, which works inside calls.
//
// submit() and wait() are called by the thread that trains.
class BlockScheduler {
 public:
  using Ticket = std::uint64_t;

  // `credit`: bytes under way at a time (ByteScheduler's window); 0 is no limit. `leader` may be null.
  BlockScheduler(std::unique_ptr<SchedulePolicy> policy, Bytes credit, std::unique_ptr<Leader> leader);
  ~BlockScheduler();
  BlockScheduler(const BlockScheduler&) = delete;
  BlockScheduler& operator=(const BlockScheduler&) = delete;

  Ticket submit(CommunicationBlock block);
  // Returns when the block is finished. Throws what its engine throws; afterwards the scheduler is of no use.
  void wait(Ticket ticket);
  // Whether the block is finished, without waiting. Throws as wait() does.
  bool finished(Ticket ticket);
  // The computation has come to a slot of the plan: blocks that a policy kept back until then may go. By the
  // thread that trains, with the same slots on all ranks.
  void reach(std::int64_t slot);
  // Blocks finished since the last call, in order of their start.
  std::vector<BlockRecord> take_records();

 private:
  struct Entry;
  using EntryPointer = std::shared_ptr<Entry>;

  void start(const EntryPointer& entry);
  void start_released();
  void start_until(Ticket ticket);
  bool has_next() const;
  bool is_released(const EntryPointer& entry) const;
  bool may_start(const EntryPointer& entry) const;
  EntryPointer take_next();
  EntryPointer take(Ticket ticket);
  void complete(const EntryPointer& entry, bool exposed);
  void retire();
  bool has_room() const;
  void lead();
  void follow();
  void fail(std::exception_ptr failure);

  const std::unique_ptr<SchedulePolicy> policy_;
  const Bytes credit_;
  const std::unique_ptr<Leader> leader_;

  std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  Ticket next_ticket_ = 0;
  std::vector<EntryPointer> waiting_;    // in order of submission
  std::deque<EntryPointer> running_;     // in order of start
  std::map<Ticket, EntryPointer> open_;  // submitted and not finished
  Bytes under_way_;
  std::vector<BlockRecord> records_;
  std::exception_ptr failure_;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace rondo
