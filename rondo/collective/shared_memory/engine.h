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

// Collectives among the ranks of one host, processes or threads, through shared memory. Work is done inside
// start(), progress() and wait(), by whoever calls them, because on one host communication is processor time.
// A helper thread sleeps meanwhile; it moves on what is under way when the rank's own threads have not called
// for a while, so that whatever was started ends (docs/decisions/112-the-helper-thread-sleeps.md).
//
// Any thread may call any method, but operations must be started in the same order on all ranks. The first
// error is final: the group is then broken and every later call repeats it, on this rank and, once they have
// looked, which they do before they start an operation, on all others. Only the end of a message because its
// peer has left in order is that message's alone.
//
// An engine is that of the process that made it. In a child that is forked later, close(), abort() and the
// destructor do nothing, and all other calls throw UsageError.
//
// Buffers belong to the operation's owner (owner.h), where one is given, until the operation has ended on
// this rank; otherwise to the caller, until wait() has returned, or has thrown and keep() has them.
class Engine {
 public:
  Engine(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena);
  // Leaves as close() does. Where an exception is being thrown it does not wait for what is under way.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return peers_.rank(); }
  int size() const { return peers_.size(); }
  const GroupOptions& options() const { return peers_.options(); }
  bool registered(const void* pointer) const { return peers_.registered(pointer); }
  // Position of a registered address in this rank's registered memory, and where this process sees a position
  // of another rank's. Valid as long as the engine.
  std::uint64_t registered_offset(const void* pointer) const { return peers_.arena_offset(pointer); }
  std::byte* registered_address(int rank, std::uint64_t offset) const {
    return peers_.arena_address(rank, offset);
  }

  // Blocks until every rank has called it. Needed once, when this rank needs the store no more: until then
  // the rank that holds the store has to live. Throws as the constructor does.
  void finish_rendezvous();
  // Throws UsageError in a process that was forked from the one that made the engine.
  void check_process() const;

  // Starts a collective and returns its sequence number. Never waits. Throws UsageError for a request that
  // cannot be; `owner`, which may be null, hears nothing then. Past `deadline` it fails though nobody waits.
  std::uint64_t start(CollectiveRequest request, std::shared_ptr<OperationOwner> owner = nullptr,
                      Deadline deadline = Deadline::never());
  // Moves everything under way as far as possible without waiting.
  void progress();
  bool completed(std::uint64_t sequence);
  // Returns when the collective has completed. Throws TimeoutError, PeerLostError, MismatchError or
  // CancelledError.
  void wait(std::uint64_t sequence, const Wait& wait);
  // start() and wait() in one, as fast as can be; `timeout` counts once it waits. Throws what either throws.
  void run(CollectiveRequest request, Duration timeout);
  // The same; a copy of `memory`, which shares the buffers, goes to keep() after an error.
  template <class Memory>
  void run(CollectiveRequest&& request, Duration timeout, const Memory& memory) {
    try {
      run(std::move(request), timeout);
    } catch (...) {
      keep(std::make_shared<Memory>(memory));
      throw;
    }
  }
  // After an error: holds the buffers of an operation without an owner where a peer was stopped inside this
  // rank's memory, as long as it may be continued; lets go of them at once where none was.
  void keep(std::shared_ptr<void> memory);

  // Of a collective by_plan behind which all before it have completed; it needs no wait(). Whether all ranks
  // have started it, which then completes it. Moves on nothing else, so that no owner hears of anything.
  // Throws MismatchError where ranks differ, which abort() has to tell the peers.
  bool agreed(std::uint64_t sequence);
  // Returns when they have, and throws what wait() would, with the same duty.
  void wait_agreed(std::uint64_t sequence, const Wait& wait);
  // Throws the error that is final here, or what a peer has announced.
  void throw_if_broken() const;

  // Number of collectives started.
  std::uint64_t sequence();

  // Never wait. Throw UsageError for a peer that is no rank of the group.
  std::shared_ptr<Message> start_send(Message message);
  std::shared_ptr<Message> start_receive(Message message);
  bool completed(const Message& message);
  void wait(const Message& message, const Wait& wait);
  // From now on the message fails past `deadline` though nobody waits for it.
  void limit(const std::shared_ptr<Message>& message, Deadline deadline);

  // A barrier apart from the order of the collectives: rank 0 waits for every other rank, and those for rank
  // 0's word. A rank that does not come leaves the group usable. A rank makes one at a time, the others wait.
  // Throws TimeoutError after `timeout`: on rank 0 it names the first rank that is missing, or with
  // `name_all_missing` all of them; on the others that rank 0 did not let them pass.
  void monitored_barrier(Duration timeout, bool name_all_missing);

  // Makes all later and all waiting calls fail with `reason`, here and on the peers.
  void abort(const std::string& reason);
  // With this error here, and what describe_failure() makes of it on the peers.
  void abort(const std::exception_ptr& error);
  // Makes all later calls on this rank fail with `reason`. Receives that nobody has sent to end with it;
  // other things under way get kLeavePatience to complete, during which this waits. If they do not, that is a
  // failure, which the peers are told; otherwise they are told nothing.
  void close(const std::string& reason);

 private:
  // One call by a thread of the rank: has the engine locked, except while it sleeps, and at its end, without
  // the lock, announces what has ended.
  class Visit;
  struct UnderWay {
    std::optional<Operation> operation = {};  // none in a spare one
    std::shared_ptr<OperationOwner> owner = {};
    Deadline deadline = Deadline::never();
  };
  // A collective that cannot begin yet: how long it is, or one before it, is not known.
  struct Queued {
    CollectiveRequest request;
    std::shared_ptr<PieceSizes> sizes;  // null: it comes behind one that has them
    std::shared_ptr<OperationOwner> owner;
    Deadline deadline;
  };
  using Owner = std::shared_ptr<OperationOwner>;

  void check(const CollectiveRequest& request) const;
  void check_peer(int peer, bool any) const;
  void begin(CollectiveRequest&& request, std::optional<Operation>& operation);
  void begin_last(CollectiveRequest&& request, std::shared_ptr<OperationOwner> owner, Deadline deadline);
  UnderWay& add_last();
  // Returns its owner.
  std::shared_ptr<OperationOwner> remove_first();
  std::uint64_t enqueue(CollectiveRequest request, std::shared_ptr<OperationOwner> owner, Deadline deadline);
  void begin_queued();
  bool spin_through(Operation& operation);
  bool step();
  bool advance();
  std::uint64_t least_consumed();
  bool anything_under_way() const { return !operations_.empty() || messages_.under_way() > 0; }
  bool anything_to_announce();
  // Returns the operations that have ended as a batch that the helper announces with the caller: the
  // announcement of one owner may wait for that of another.
  std::shared_ptr<Announcements> share_unannounced();
  void ended(std::shared_ptr<OperationOwner> owner, const std::exception_ptr& error);

  void throw_if_failed() const;
  // Throws what has failed here, or on a peer; the latter is then final here, too.
  void throw_if_failed_anywhere();
  [[noreturn]] void fail(const std::exception_ptr& error);
  // Breaks the group and ends all that is under way, once no peer is in this rank's memory any more.
  void give_up(const std::exception_ptr& error, const ChannelFailure& failure);
  void leave(const std::string& reason, Duration patience);

  // Waits with the lock held, giving it up where it yields or sleeps.
  template <class Done, class Describe>
  void wait_until(Visit& visit, Done done, const Wait& wait, Describe describe);
  struct PeerTrouble {
    std::vector<int> failed;  // announced a failure
    std::vector<int> left;    // left in order
    std::vector<int> ended;   // the process is gone
  };
  PeerTrouble look_at_peers() const;
  // What peers did before they were looked at; then messages that can come no more end.
  void take_what_came(const PeerTrouble& trouble);
  void throw_if_peer_failed(const PeerTrouble& trouble, const std::string& what,
                            const std::vector<int>& missing);
  // How often in a row each rank was seen stopped.
  using StoppedCounts = std::vector<int>;
  void throw_if_stopped(StoppedCounts& counts, const std::string& what, const std::vector<int>& missing);
  TimeoutError late(const std::string& what, const std::string& after, const std::vector<int>& missing) const;
  [[noreturn]] void time_out(const std::string& what, const std::string& after,
                             const std::vector<int>& missing);
  std::string describe_collective(std::uint64_t sequence, std::vector<int>& missing) const;
  std::string describe_message(const Message& message, std::vector<int>& missing) const;

  // The two sides of the monitored barrier numbered `call`, see engine_failures.cpp.
  void let_the_others_pass(std::uint64_t call, Duration timeout, bool name_all_missing) const;
  void wait_to_pass(std::uint64_t call, Duration timeout) const;

  // The helper threads', see engine_helper.cpp.
  void call_helper();
  void help(HelperThread::Control& control);
  void take_over(std::unique_lock<std::mutex>& lock, HelperThread::Control& control);
  void look_for_trouble(StoppedCounts& stopped, TimePoint& next_stopped_check);

  mutable std::mutex mutex_;  // protects everything below; the shared-memory files have their own protocol
  Peers peers_;
  Messages messages_;
  std::list<UnderWay> operations_;  // not yet complete, in order
  std::list<UnderWay> spare_;       // their memory is used again: a small operation notices an allocation
  // After them, in order. The sizes that the first one waits for are among operations_.
  std::deque<Queued> queued_;
  std::uint64_t started_ = 0;    // collectives begun; those in queued_ follow
  std::uint64_t completed_ = 0;  // collectives completed; always a prefix
  std::uint64_t next_ticket_ = 0;
  std::uint64_t slot_end_ticket_[kSlots] = {};  // end ticket of the operation that last used a slot
  std::uint64_t known_least_consumed_ = 0;
  std::exception_ptr failure_;
  int spin_limit_;
  std::vector<Owner> unannounced_;                       // of what has ended
  std::vector<std::shared_ptr<Announcements>> batches_;  // that are being announced
  bool hands_off_ = true;                      // no peer was stopped inside this rank's memory when it failed
  std::vector<std::shared_ptr<void>> unsafe_;  // else: what has ended in that error, with its buffers
  std::uint64_t visits_ = 0;                   // calls of the rank's threads so far
  int waiting_ = 0;                            // threads inside wait_until
  bool helper_sleeps_ = false;                 // the helper on duty, until it is woken
  const OwnProcess process_;
  HelperTeam helpers_;  // from the first operation that a call leaves under way

  std::mutex barrier_mutex_;    // held by a call of monitored_barrier(); protects barriers_
  std::uint64_t barriers_ = 0;  // monitored barriers so far
};

// How long a rank that leaves gives its operations under way to end.
constexpr Duration kLeavePatience = std::chrono::seconds(5);

}  // namespace rondo::shared_memory
