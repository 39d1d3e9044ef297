#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "rondo/base/cancel.h"
#include "rondo/collective/shared_memory/message.h"
#include "rondo/collective/shared_memory/operation.h"

namespace rondo::shared_memory {

// Collectives among the ranks of one host, processes or threads, through shared memory. It has no thread of
// its own: work is done inside start(), progress() and wait(), by whoever calls them, because on one host
// communication is processor time and a helper thread would take it from the computation (and wakes up too
// late).
//
// Any thread may call any method, but operations must be started in the same order on all ranks. The first
// error is final: the group is then broken and every later call repeats it.
class Engine {
 public:
  Engine(Store& store, const GroupOptions& options, std::shared_ptr<SharedArena> arena);

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

  // Starts a collective and returns its sequence number. Never waits. Throws UsageError for a request that
  // cannot be.
  std::uint64_t start(CollectiveRequest request);
  // Moves everything under way as far as possible without waiting.
  void progress();
  bool completed(std::uint64_t sequence);
  // Returns when the collective has completed. Throws TimeoutError, PeerLostError, MismatchError or
  // CancelledError.
  void wait(std::uint64_t sequence, const Wait& wait);
  // start() and wait() in one, as fast as can be; `timeout` counts once it waits. Throws what either throws.
  void run(CollectiveRequest request, Duration timeout);
  // Number of collectives started.
  std::uint64_t sequence();

  std::shared_ptr<Message> start_send(Message message);
  std::shared_ptr<Message> start_receive(Message message);
  bool completed(const Message& message);
  void wait(const Message& message, const Wait& wait, bool is_send);
  // Waits until some rank has sent a message with this tag, and returns that rank.
  int wait_any_source(int tag, const Wait& wait);

  // Makes all later and all waiting calls fail with `reason`, here and on the peers.
  void abort(const std::string& reason);
  // Makes all later calls on this rank fail with `reason`; peers are told nothing.
  void close(const std::string& reason);

 private:
  void check(const CollectiveRequest& request) const;
  Operation begin(CollectiveRequest request);
  bool spin_through(Operation& operation);
  bool step();
  bool advance();
  std::uint64_t least_taken();
  void throw_if_failed() const;
  [[noreturn]] void fail(std::exception_ptr error);
  // Waits with the lock held, giving it up where it yields or sleeps.
  template <class Done, class Describe>
  void wait_until(std::unique_lock<std::mutex>& lock, Done done, const Wait& wait, Describe describe);
  struct PeerTrouble {
    std::vector<int> failed;  // announced a failure
    std::vector<int> left;    // left in order
    std::vector<int> ended;   // the process is gone
  };
  PeerTrouble look_at_peers() const;
  void throw_if_hopeless(const PeerTrouble& trouble, const std::string& what,
                         const std::vector<int>& missing);
  // How often in a row each rank was seen stopped.
  using StoppedCounts = std::vector<int>;
  void throw_if_stopped(StoppedCounts& counts, const std::string& what, const std::vector<int>& missing);
  std::string describe_front(std::uint64_t sequence, std::vector<int>& missing);

  mutable std::mutex mutex_;  // protects everything below; the shared-memory files have their own protocol
  Peers peers_;
  Messages messages_;
  std::deque<Operation> operations_;  // not yet complete, in order
  std::uint64_t started_ = 0;         // collectives started
  std::uint64_t completed_ = 0;       // collectives completed; always a prefix
  std::uint64_t next_ticket_ = 0;
  std::uint64_t slot_end_ticket_[kSlots] = {};  // end ticket of the operation that last used a slot
  std::uint64_t known_least_taken_ = 0;
  std::exception_ptr failure_;
  int spin_limit_;
};

}  // namespace rondo::shared_memory
