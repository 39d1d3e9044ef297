#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/channel/store.h"
#include "rondo/collective/chooser/chooser.h"
#include "rondo/collective/executor.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo {

// Runs those collectives of a group by a plan for which the chooser finds a plan faster than the engine, or
// the user named one (RONDO_ALGORITHM): all_reduce, reduce_scatter, all_gather, broadcast and reduce; the
// others are the engine's.
//
// Plans run one after the other, in the order in which they were started: on the thread of who waits for one,
// or on a helper thread, so that what was started ends though its rank is elsewhere. Their sums may be added
// in another order than the engine's (docs/algorithms.md), unless the group is deterministic. Any thread;
// collectives in the same order on all ranks. The first error of communication is final for the group.
//
// Each is announced by an operation of the engine that moves no data (CollectiveRequest::by_plan), when it is
// started. So the engine's order of calls counts plans, and its ranks find out where they disagree, whether
// they wait in the engine, in the plan, or for the others to come to a plan that is done here.
class PlannedCollectives {
 public:
  // Collective over the store: rank 0 says what it has measured (tuning_path()), what was set by hand and
  // whether sums are added in rank order, so that all ranks choose alike. In rank order only what was set by
  // hand counts: measurements are of other plans. Null when all choices are the engine. Throws UsageError for
  // a wrong RONDO_ALGORITHM, on all ranks.
  static std::shared_ptr<PlannedCollectives> make(Store& store, std::shared_ptr<shared_memory::Engine> engine,
                                                  bool in_rank_order);
  // Leaves as close() does. Where an exception is being thrown it does not wait for what is under way.
  ~PlannedCollectives();
  PlannedCollectives(const PlannedCollectives&) = delete;
  PlannedCollectives& operator=(const PlannedCollectives&) = delete;

  bool adds_in_rank_order() const { return in_rank_order_; }

  // Starts a collective and returns its number, for wait(); nothing, and does nothing, where the engine is to
  // be used. Never waits. `owner` keeps the buffers and hears of the end, as of an operation of the engine.
  // Where `caller_waits`, which is to follow at once, the helper thread is left asleep. Throws when the group
  // is broken or was shut down.
  std::optional<std::uint64_t> start(const CollectiveRequest& request,
                                     std::shared_ptr<shared_memory::OperationOwner> owner,
                                     const Deadline& deadline, bool caller_waits);
  // Returns when the collective has ended, of which its owner knows how. Past `deadline` all plans end with a
  // TimeoutError.
  void wait(std::uint64_t number, const Deadline& deadline);
  // Runs a collective to its end; false, and does nothing, where the engine is to be used. Throws what
  // Executor::run and Engine::wait throw.
  bool run(const CollectiveRequest& request, const Deadline& deadline);

  // What is under way and all that comes later ends with CancelledError.
  void abort(const std::string& reason);
  // What is under way gets kLeavePatience to end; after that it fails, and so does all that comes later.
  void close(const std::string& reason);

 private:
  using Owner = std::shared_ptr<shared_memory::OperationOwner>;
  struct QueuedCollective {
    CollectiveRequest request;
    Owner owner;
    collective::Choice choice;
    std::uint64_t announcement;  // the engine's sequence number of what tells the peers of this one
    Deadline deadline;
  };

  PlannedCollectives(Store& store, std::shared_ptr<shared_memory::Engine> engine, collective::Chooser chooser,
                     bool in_rank_order);
  std::optional<collective::Choice> choose(const CollectiveRequest& request) const;
  void help(shared_memory::HelperThread::Control& control);
  // Runs the first of the queue, while no other one is run and with the lock given up; returns the owner, who
  // has to be announced without the lock.
  Owner run_next(std::unique_lock<std::mutex>& lock, const Deadline& limit);
  void run_plan(const QueuedCollective& queued, const Deadline& deadline);
  // With the lock given up, until a collective ends; at most for `limit`.
  void sleep(std::unique_lock<std::mutex>& lock, Duration limit);
  // The lock is held.
  void give_up(const std::exception_ptr& error);
  void end_all(const std::exception_ptr& error, Duration patience);

  collective::Executor& executor_for(const CollectiveRequest& request, const collective::Choice& choice);
  std::uint64_t buffer_bytes(const CollectiveRequest& request) const;
  std::span<std::byte> fill_buffer(const CollectiveRequest& request);
  void take_result(const CollectiveRequest& request, std::span<const std::byte> buffer) const;

  const std::shared_ptr<shared_memory::Engine> engine_;
  const collective::Chooser chooser_;
  const int rank_;
  const int size_;
  const bool in_rank_order_;
  const OwnProcess process_;
  const CancelToken cancel_;

  // Of whoever runs a plan.
  std::unique_ptr<Channel> channel_;
  // By operation, type, reduction, root, bytes and algorithm. A training job has few.
  using Key = std::tuple<OperationKind, DType, Reduction, int, std::uint64_t, std::string>;
  std::map<Key, std::unique_ptr<collective::Executor>> executors_;
  std::uint64_t announcement_ = 0;  // of the one that is run
  std::vector<std::byte> scratch_;  // where pieces do not lie as a plan wants them

  std::mutex mutex_;  // protects what follows
  std::deque<QueuedCollective> queue_;
  bool running_ = false;  // a thread runs one
  std::uint64_t started_ = 0;
  std::uint64_t ended_ = 0;                // always a prefix
  std::exception_ptr given_up_;            // what ends all from now on
  std::atomic<std::uint32_t> endings_{0};  // to sleep on; a futex survives a fork while threads sleep
  shared_memory::HelperTeam helpers_;      // from the first one whose caller does not wait
};

}  // namespace rondo
