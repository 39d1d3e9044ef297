#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/format/trace_span.h"
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
// number of each block; they start the same. A thread of the queue's own does it, so that a block goes out in
// the middle of a computation. For engines that work in the background.
//
// Without one, starts happen inside calls of the queue and follow from these calls alone, so all ranks find
// the same order by themselves. `in_flight_limit` is then not looked at, since when a block finishes is known
// to one rank only. For the native engine, which works inside calls.
//
// Blocks of several rounds (communication hooks), which need a queue without a leader, take turns in one
// order too: once a block is started, each one before it that has a round left starts one, and only then the
// next block may start. So later rounds overlap with computation, without a message that one rank sends
// before and another after.
//
// The thread that trains calls it.
class CommunicationQueue {
 public:
  using Ticket = std::uint64_t;

  // `in_flight_limit`: bytes under way at a time (ByteScheduler's window); 0 is no limit. `leader` may be
  // null. `engine_tells` of the moment at which an operation ends; otherwise that is when it is seen.
  CommunicationQueue(std::unique_ptr<SchedulePolicy> policy, Bytes in_flight_limit,
                     std::unique_ptr<Leader> leader, bool engine_tells = true);
  ~CommunicationQueue();
  CommunicationQueue(const CommunicationQueue&) = delete;
  CommunicationQueue& operator=(const CommunicationQueue&) = delete;

  Ticket submit(CommunicationBlock block);
  // Returns when the block is finished: what its future gives, to the first who waits. Throws what its engine
  // throws, with the block named; afterwards the queue is of no use before abandon().
  at::Tensor wait(Ticket ticket);
  // Whether the block is finished, without waiting. Throws as wait() does.
  bool finished(Ticket ticket);
  // Lets what is under way move on, and sees what has ended, without waiting. Without a leader.
  void poll();
  // Starts every round of the blocks submitted so far, waiting for the messages before it. What else the
  // ranks do on the group is then between the same messages everywhere. Without a leader.
  void start_all();
  // Waits for what is under way, whatever its outcome, and forgets all blocks. Without a leader.
  void abandon() noexcept;
  // The computation has come to a slot of the plan: blocks that a policy kept back until then may go. With
  // the same slots on all ranks.
  void reach(std::int64_t slot);
  // Blocks finished since the last call, in order of their start.
  std::vector<TraceSpan> take_spans();

 private:
  struct Entry;
  using EntryPointer = std::shared_ptr<Entry>;

  EntryPointer find(Ticket ticket) const;
  EntryPointer before(const Entry& entry) const;
  void start(const EntryPointer& entry);
  void start_round(const EntryPointer& entry);
  void release();
  void move_on(bool waits);
  void begin_turn();
  bool has_next() const;
  bool is_released(const Entry& entry) const;
  bool may_start(const Entry& entry) const;
  EntryPointer take_next();
  EntryPointer take(Ticket ticket);
  at::Tensor complete(const EntryPointer& entry, bool exposed);
  void retire();
  bool has_room() const;
  void lead();
  void follow();
  void fail(std::exception_ptr failure);
  void check_startable(const Entry& entry) const;

  const std::unique_ptr<SchedulePolicy> policy_;
  const Bytes in_flight_limit_;
  const std::unique_ptr<Leader> leader_;
  const bool engine_tells_;

  std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  std::vector<EntryPointer> waiting_;  // in order of submission
  std::deque<EntryPointer> ordered_;   // without a leader: whose order of starts is fixed, not started yet
  std::deque<EntryPointer> turn_;      // that start a round before the next block may start
  std::deque<EntryPointer> running_;   // in order of start
  std::size_t seen_ = 0;               // of running_, from its beginning, that were seen to have ended
  std::deque<EntryPointer> open_;      // by number from first_ on: submitted; null once finished
  Ticket first_ = 0;
  Bytes under_way_;
  std::vector<TraceSpan> spans_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  bool thread_ended_ = false;
  bool leader_stopped_ = false;  // the leader has ended its queue: nothing starts any more

  std::thread thread_;  // last: it uses everything above
};

}  // namespace rondo
