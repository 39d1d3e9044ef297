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

// A queue of communication segments that starts segments in an order chosen by a policy, the same on all
// ranks. A call that needs a segment's result waits for that segment and no other.
//
// Ranks submit the same segments, and wait for the same segments, in the same order. The common order of
// starts is established in one of two ways.
//
// With a Leader, the first rank starts the segment that its policy picks whenever there is room. It announces
// the segment's number to the other ranks, which start the same segment. A thread of the queue does this, so
// that a segment can start in the middle of a computation. For engines that work in the background.
//
// Without a Leader, segments start inside calls of the queue. The order follows from these calls alone, so
// all ranks derive the same order. `in_flight_limit` is ignored, because the time at which a segment finishes
// differs between ranks. For the native engine, which works inside calls.
//
// Segments with several rounds (communication hooks) require a queue without a leader. After each start of a
// segment, every earlier segment with a round left starts one round before the next segment may start. So
// later rounds overlap with computation, and messages have the same order on all ranks.
//
// Used by the training thread.
class CommunicationQueue {
 public:
  using Ticket = std::uint64_t;

  // `in_flight_limit`: maximum number of bytes in flight (ByteScheduler's window); 0 is no limit. `leader`
  // may be null. `engine_reports_completion`: whether the engine reports the end of an operation when it
  // happens; if not, the recorded end is the time at which the queue observes it.
  CommunicationQueue(std::unique_ptr<SchedulePolicy> policy, Bytes in_flight_limit,
                     std::unique_ptr<Leader> leader, bool engine_reports_completion = true);
  ~CommunicationQueue();
  CommunicationQueue(const CommunicationQueue&) = delete;
  CommunicationQueue& operator=(const CommunicationQueue&) = delete;

  Ticket submit(CommunicationSegment segment);
  // Blocks until the segment is finished. Returns the result of its future to the first caller, then an
  // undefined tensor. Throws the engine's error, with the segment named; the queue is then unusable until
  // abandon().
  at::Tensor wait(Ticket ticket);
  // Returns true if the segment is finished, without blocking. Throws as wait() does.
  bool finished(Ticket ticket);
  // Starts the rounds that are ready and records the messages that have ended, without blocking. Requires a
  // queue without a leader.
  void poll();
  // Starts all segments submitted so far and all their rounds, waiting for the messages before them. Other
  // collectives that the ranks run on the group are then at the same place in the order everywhere. Requires
  // a queue without a leader.
  void start_all();
  // Waits for the messages in flight, successful or not, and drops all segments. Requires a queue without a
  // leader.
  void abandon() noexcept;
  // Reports that the computation has reached a slot of the plan, and releases the segments that the policy
  // deferred until then. Slots must be the same on all ranks.
  void reach(std::int64_t slot);
  // Returns the spans of segments finished since the last call, in order of their start.
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
  // Submitted segments whose position in the order is not fixed, in order of submission.
  std::vector<EntryPointer> waiting_;
  // Without a leader: segments whose position in the order is fixed, but not started.
  std::deque<EntryPointer> ordered_;
  std::deque<EntryPointer> turn_;     // segments that start a round before the next segment may start
  std::deque<EntryPointer> running_;  // started segments, in order of start
  std::size_t seen_ = 0;  // number of entries at the front of running_ that were observed to have ended
  std::deque<EntryPointer> open_;  // submitted segments by ticket, starting at first_; null once finished
  Ticket first_ = 0;
  Bytes under_way_;
  std::vector<TraceSpan> spans_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  bool thread_ended_ = false;
  bool leader_stopped_ = false;  // the leader has ended its queue: no more segments start

  std::thread thread_;  // last member, because it uses the ones above
};

}  // namespace rondo
