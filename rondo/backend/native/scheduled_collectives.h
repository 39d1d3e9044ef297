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
#include "rondo/collective/algorithms/selection.h"
#include "rondo/collective/executor.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo {

// Runs collectives of a group by the schedules that RONDO_ALGORITHM selects: all_reduce, reduce_scatter,
// all_gather, broadcast and reduce. The engine runs all others.
//
// Schedules run one after the other in the order in which they were started, on a waiting thread or on a
// helper thread, so that schedules end while their rank is elsewhere. The sums may be added in another order
// than the engine's (docs/algorithms.md), unless the group is deterministic. Any thread; all ranks make the
// collectives in the same order. The first error of communication is final for the group.
//
// When a collective starts, an engine operation that moves no data announces it
// (CollectiveRequest::by_schedule). So the engine's order of calls includes schedules, and ranks detect a
// mismatch whether they wait in the engine, in the schedule, or, after it, for peers that have not started
// this collective.
class ScheduledCollectives {
 public:
  // Makes the object, or returns null if the engine runs every collective. Collective over the store: rank 0
  // broadcasts RONDO_ALGORITHM and whether sums are added in rank order, so that all ranks use the same
  // schedules. Throws UsageError for an invalid RONDO_ALGORITHM, on all ranks.
  static std::shared_ptr<ScheduledCollectives> make(Store& store,
                                                    std::shared_ptr<shared_memory::Engine> engine,
                                                    bool in_rank_order);
  // Closes as close() does, but does not wait for collectives in flight during stack unwinding.
  ~ScheduledCollectives();
  ScheduledCollectives(const ScheduledCollectives&) = delete;
  ScheduledCollectives& operator=(const ScheduledCollectives&) = delete;

  bool adds_in_rank_order() const { return in_rank_order_; }

  // Starts a collective and returns its number, for wait(); returns nullopt and does nothing if the engine is
  // to run it. Never waits. `owner` keeps the buffers and is notified of the end, as for an operation of the
  // engine. `caller_waits` declares that wait() follows at once, so the helper thread is not woken. Throws if
  // the group has failed or was shut down.
  std::optional<std::uint64_t> start(const CollectiveRequest& request,
                                     std::shared_ptr<shared_memory::OperationOwner> owner,
                                     const Deadline& deadline, bool caller_waits);
  // Blocks until the collective has ended; its owner receives the outcome. After `deadline` all schedules end
  // with TimeoutError.
  void wait(std::uint64_t number, const Deadline& deadline);
  // Runs a collective to its end; returns false and does nothing if the engine is to run it. Throws as
  // Executor::run and Engine::wait do.
  bool run(const CollectiveRequest& request, const Deadline& deadline);

  // Ends collectives in flight and all later ones with CancelledError.
  void abort(const std::string& reason);
  // Waits up to kLeavePatience for collectives in flight; then fails them and all later ones.
  void close(const std::string& reason);

 private:
  using Owner = std::shared_ptr<shared_memory::OperationOwner>;
  struct QueuedCollective {
    CollectiveRequest request;
    Owner owner;
    std::string algorithm;
    std::uint64_t announcement;  // engine's sequence number of the announcement
    Deadline deadline;
  };

  ScheduledCollectives(Store& store, std::shared_ptr<shared_memory::Engine> engine,
                       collective::AlgorithmSelection selection, bool in_rank_order);
  // Returns the selected algorithm; empty if the engine is to run the collective.
  std::optional<std::string> algorithm_for(const CollectiveRequest& request) const;
  void help(shared_memory::HelperThread::Control& control);
  // Runs the first collective of the queue with the lock released; no other may be running. Returns the
  // owner, which must be announced without the lock.
  Owner run_next(std::unique_lock<std::mutex>& lock, const Deadline& limit);
  void run_schedule(const QueuedCollective& queued, const Deadline& deadline);
  // Releases the lock and blocks until a collective ends or `limit` has passed.
  void sleep(std::unique_lock<std::mutex>& lock, Duration limit);
  // Requires the lock.
  void give_up(const std::exception_ptr& error);
  void end_all(const std::exception_ptr& error, Duration patience);

  collective::Executor& executor_for(const CollectiveRequest& request, const std::string& algorithm);
  std::uint64_t buffer_bytes(const CollectiveRequest& request) const;
  std::span<std::byte> fill_buffer(const CollectiveRequest& request);
  void take_result(const CollectiveRequest& request, std::span<const std::byte> buffer) const;

  const std::shared_ptr<shared_memory::Engine> engine_;
  const collective::AlgorithmSelection selection_;
  const int rank_;
  const int size_;
  const bool in_rank_order_;
  const OwnProcess process_;
  const CancelToken cancel_;

  // Used only by the thread that runs a schedule.
  std::unique_ptr<Channel> channel_;
  // Executors by operation, type, reduction, root, bytes and algorithm. A training job has few.
  using Key = std::tuple<OperationKind, DType, Reduction, int, std::uint64_t, std::string>;
  std::map<Key, std::unique_ptr<collective::Executor>> executors_;
  std::uint64_t announcement_ = 0;  // of the running collective
  std::vector<std::byte> scratch_;  // schedule's buffer if the caller's pieces are not adjacent

  std::mutex mutex_;  // protects the fields below
  std::deque<QueuedCollective> queue_;
  bool running_ = false;  // a thread runs a collective
  std::uint64_t started_ = 0;
  std::uint64_t ended_ = 0;      // number of ended collectives, which end in the order of their start
  std::exception_ptr given_up_;  // error of all collectives that have not ended
  std::atomic<std::uint32_t> endings_{0};  // futex; unlike a condition variable, it survives a fork
  shared_memory::HelperTeam helpers_;      // started for the first caller that does not wait
};

}  // namespace rondo
