#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/channel/failure.h"
#include "rondo/collective/shared_memory/helper_thread.h"
#include "rondo/collective/shared_memory/message.h"
#include "rondo/collective/shared_memory/operation.h"
#include "rondo/collective/shared_memory/owner.h"

namespace rondo::shared_memory {

// Collectives among the ranks of one host, processes or threads, through shared memory. start(), progress()
// and wait() do the work in the calling thread, because on one host communication is processor time. A helper
// thread sleeps meanwhile. The helper progresses operations in flight if the rank's own threads have not
// called for a while, so that every operation ends
// (docs/decisions/0030-helper-thread-of-the-native-engine.md).
//
// Any thread may call any method, but operations must be started in the same order on all ranks. The first
// error is final: the group has failed and every later call repeats the error, on this rank and on all
// others, which check before they start an operation. Only a message whose peer has left in an orderly way
// fails alone.
//
// An engine belongs to the process that made it. In a child that is forked later, close(), abort() and the
// destructor do nothing, and all other calls throw UsageError.
//
// Buffers belong to the operation's owner (owner.h), if one is given, until the operation has ended on this
// rank; otherwise to the caller, until wait() has returned, or has thrown and keep() has received them.
class Engine {
 public:
  Engine(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena);
  // Closes as close() does, but does not wait for operations in flight during stack unwinding.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return peers_.rank(); }
  int size() const { return peers_.size(); }
  const GroupOptions& options() const { return peers_.options(); }
  bool registered(const void* pointer) const { return peers_.registered(pointer); }
  // Offset of a registered address in this rank's registered memory, and address in this process of an offset
  // in another rank's. Valid during the engine's lifetime.
  std::uint64_t registered_offset(const void* pointer) const { return peers_.arena_offset(pointer); }
  std::byte* registered_address(int rank, std::uint64_t offset) const {
    return peers_.arena_address(rank, offset);
  }

  // Blocks until every rank has called it. Call it once, after this rank's last use of the store: until it
  // returns, the rank that keeps the store must live. Throws as the constructor does.
  void finish_rendezvous();
  // Throws UsageError in a process that was forked from the engine's process.
  void check_process() const;

  // Starts a collective and returns its sequence number. Never waits. Throws UsageError for an invalid
  // request; `owner`, which may be null, is then not notified. After `deadline` the collective fails even if
  // no thread waits for it.
  std::uint64_t start(CollectiveRequest request, std::shared_ptr<OperationOwner> owner = nullptr,
                      Deadline deadline = Deadline::never());
  // Progresses everything in flight as far as possible without waiting.
  void progress();
  bool completed(std::uint64_t sequence);
  // Blocks until the collective has completed. Throws TimeoutError, PeerLostError, MismatchError or
  // CancelledError.
  void wait(std::uint64_t sequence, const Wait& wait);
  // Runs start() and wait() with the lowest latency; `timeout` counts from the start of the wait. Throws the
  // errors of both.
  void run(CollectiveRequest&& request, Duration timeout);
  // Runs a collective as above; after an error keep() receives a copy of `memory`, which shares the buffers.
  template <class Memory>
  void run(CollectiveRequest&& request, Duration timeout, const Memory& memory) {
    try {
      run(std::move(request), timeout);
    } catch (...) {
      keep(std::make_shared<Memory>(memory));
      throw;
    }
  }
  // Keeps the buffers of a failed operation without an owner while a peer that was stopped inside this rank's
  // memory may be continued; releases them at once if there is no such peer.
  void keep(std::shared_ptr<void> memory);

  // Returns whether all ranks have started a collective by_schedule, and then completes it; it needs no
  // wait(). All earlier collectives must have completed. Progresses nothing else, so that no owner is
  // notified. Throws MismatchError if ranks differ; the caller must pass it to abort(), which notifies the
  // peers.
  bool agreed(std::uint64_t sequence);
  // Blocks until all ranks have started it. Throws the errors of wait() and agreed(), which need abort()
  // likewise.
  void wait_agreed(std::uint64_t sequence, const Wait& wait);
  // Throws this rank's final error, or a peer's announced failure.
  void throw_if_broken() const;

  // Returns the number of collectives started.
  std::uint64_t sequence();

  // Start messages. Never wait. Throw UsageError for a peer that is not a rank of the group.
  std::shared_ptr<Message> start_send(Message message);
  std::shared_ptr<Message> start_receive(Message message);
  bool completed(const Message& message);
  void wait(const Message& message, const Wait& wait);
  // Sets the deadline after which the message fails even if no thread waits for it.
  void limit(const std::shared_ptr<Message>& message, Deadline deadline);

  // A barrier independent of the order of the collectives: rank 0 waits for every other rank, and the others
  // wait for rank 0. A missing rank leaves the group usable. One barrier at a time per rank; further calls
  // wait. Throws TimeoutError after `timeout`: on rank 0 it names the first missing rank, or with
  // `name_all_missing` all of them; on other ranks it reports that rank 0 did not let them pass.
  void monitored_barrier(Duration timeout, bool name_all_missing);

  // Fails all waiting and later calls with `reason`, here and on the peers.
  void abort(const std::string& reason);
  // Fails them with this error here, and with the result of describe_failure() on the peers.
  void abort(const std::exception_ptr& error);
  // Fails all later calls and all pending receives on this rank with `reason`. Waits up to kLeavePatience for
  // other operations in flight. If they do not complete, that is a failure, and the peers are notified;
  // otherwise they are not.
  void close(const std::string& reason);

 private:
  // A call by a thread of the rank. Locks the engine, except while it sleeps; its destructor releases the
  // lock and announces ended operations.
  class Visit;
  struct PendingOperation {
    std::optional<Operation> operation = {};  // empty for a spare entry
    std::shared_ptr<OperationOwner> owner = {};
    Deadline deadline = Deadline::never();
  };
  // A collective that cannot begin yet, because its size, or the size of an earlier one, is unknown.
  struct Queued {
    CollectiveRequest request;
    std::shared_ptr<PieceSizes> sizes;  // null: queued behind an operation with unknown sizes
    std::shared_ptr<OperationOwner> owner;
    Deadline deadline;
  };
  using Owner = std::shared_ptr<OperationOwner>;

  void check(const CollectiveRequest& request) const;
  void check_peer(int peer, bool any) const;
  void begin(CollectiveRequest&& request, std::optional<Operation>& operation);
  void begin_last(CollectiveRequest&& request, std::shared_ptr<OperationOwner> owner, Deadline deadline);
  PendingOperation& add_last();
  // Removes the first operation and returns its owner.
  std::shared_ptr<OperationOwner> remove_first();
  std::uint64_t enqueue(CollectiveRequest request, std::shared_ptr<OperationOwner> owner, Deadline deadline);
  void begin_queued();
  bool next_slot_is_free();
  bool reduce_in_slots(const CollectiveRequest& request);
  bool spin_through(Operation& operation);
  bool step();
  bool advance();
  std::uint64_t least_consumed();
  bool anything_under_way() const { return !operations_.empty() || messages_.under_way() > 0; }
  bool anything_to_announce();
  // Returns the ended operations as a batch that the helper announces together with the caller, because the
  // announcement of one owner may wait for another owner's.
  std::shared_ptr<Announcements> share_unannounced();
  void ended(std::shared_ptr<OperationOwner> owner, const std::exception_ptr& error);

  void throw_if_failed() const;
  // Throws this rank's failure, or a peer's, which then becomes final here too.
  void throw_if_failed_anywhere();
  [[noreturn]] void fail(const std::exception_ptr& error);
  // Fails the group and ends all operations in flight, once no peer accesses this rank's memory any more.
  void give_up(const std::exception_ptr& error, const ChannelFailure& failure);
  void leave(const std::string& reason, Duration patience);

  // Waits with the lock held; releases it to yield or sleep.
  template <class Done, class Describe>
  void wait_until(Visit& visit, Done done, const Wait& wait, Describe describe);
  struct PeerTrouble {
    std::vector<int> failed;  // announced a failure
    std::vector<int> left;    // left in an orderly way
    std::vector<int> ended;   // the process has ended
  };
  PeerTrouble look_at_peers() const;
  // Processes data that peers had published before look_at_peers(); then ends messages that can no longer
  // arrive.
  void drain_received(const PeerTrouble& trouble);
  void throw_if_peer_failed(const PeerTrouble& trouble, const std::string& what,
                            const std::vector<int>& missing);
  // Number of consecutive checks in which each rank was stopped.
  using StoppedCounts = std::vector<int>;
  void throw_if_stopped(StoppedCounts& counts, const std::string& what, const std::vector<int>& missing);
  TimeoutError late(const std::string& what, const std::string& after, const std::vector<int>& missing) const;
  [[noreturn]] void time_out(const std::string& what, const std::string& after,
                             const std::vector<int>& missing);
  std::string describe_collective(std::uint64_t sequence, std::vector<int>& missing) const;
  std::string describe_message(const Message& message, std::vector<int>& missing) const;

  // Rank 0's side and the other ranks' side of monitored barrier number `call`, see engine_failures.cpp.
  void let_the_others_pass(std::uint64_t call, Duration timeout, bool name_all_missing) const;
  void wait_to_pass(std::uint64_t call, Duration timeout) const;

  // Functions of the helper threads, see engine_helper.cpp.
  void call_helper();
  void help(HelperThread::Control& control);
  void take_over(std::unique_lock<std::mutex>& lock, HelperThread::Control& control);
  void look_for_trouble(StoppedCounts& stopped, TimePoint& next_stopped_check);

  mutable std::mutex mutex_;  // protects everything below; the shared-memory files have their own protocol
  Peers peers_;
  Messages messages_;
  std::list<PendingOperation> operations_;  // incomplete, in order
  std::list<PendingOperation> spare_;       // reused, because an allocation slows a small operation
  // Operations to begin later, in order. operations_ contains the exchange of sizes that the first one waits
  // for.
  std::deque<Queued> queued_;
  std::uint64_t started_ = 0;    // number of collectives begun; those in queued_ follow
  std::uint64_t completed_ = 0;  // collectives completed, which is in the order of their start
  std::uint64_t next_ticket_ = 0;
  std::uint64_t slot_end_ticket_[kSlots] = {};  // end ticket of the operation that last used a slot
  std::uint64_t known_least_consumed_ = 0;
  std::exception_ptr failure_;
  int spin_limit_;
  std::vector<Owner> unannounced_;                       // owners of ended operations
  std::vector<std::shared_ptr<Announcements>> batches_;  // batches being announced
  bool hands_off_ = true;  // no peer was stopped while it accessed this rank's memory at the failure
  std::vector<std::shared_ptr<void>>
      unsafe_;                  // owners, with their buffers, to keep unless hands_off_ is true
  std::uint64_t visits_ = 0;    // number of calls of the rank's threads so far
  int waiting_ = 0;             // threads inside wait_until
  bool helper_sleeps_ = false;  // the helper on duty sleeps until it is woken
  const OwnProcess process_;
  HelperTeam helpers_;  // started for the first operation that a call leaves in flight

  std::mutex barrier_mutex_;    // held by a call of monitored_barrier(); protects barriers_
  std::uint64_t barriers_ = 0;  // monitored barriers so far
};

// Time that close() waits for operations in flight.
constexpr Duration kLeavePatience = std::chrono::seconds(5);

}  // namespace rondo::shared_memory
