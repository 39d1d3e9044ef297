#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "rondo/backend/hierarchical/host_map.h"
#include "rondo/backend/hierarchical/outer_link.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo::hierarchical {

// Collectives among the ranks of one host. Roots and pieces are numbered by local rank; the ranks that errors
// carry are the whole group's.
//
// Buffers have no owner that outlives a failure, and need none: no peer writes to another rank's memory here.
// Only all_reduce does, when it works in place, and that is refused.
class HostGroup {
 public:
  // Waits take up to `patience` longer than their deadline.
  HostGroup(std::shared_ptr<shared_memory::Engine> engine, std::vector<int> members, Duration patience)
      : engine_(std::move(engine)), members_(std::move(members)), patience_(patience) {}

  std::uint64_t start(CollectiveRequest request) {
    if (request.kind == OperationKind::all_reduce)
      throw UsageError(
          "an all_reduce within a host may write to a peer's buffer after that peer has given up");
    return translated([&] { return engine_->start(std::move(request)); });
  }
  // Until a collective, and so all before it, has completed.
  void wait(std::uint64_t sequence, const Deadline& deadline) {
    translated([&] { engine_->wait(sequence, {deadline.later_by(patience_), nullptr}); });
  }
  void run(CollectiveRequest request, const Deadline& deadline) { wait(start(std::move(request)), deadline); }
  void abort(const std::string& reason) { engine_->abort(reason); }

 private:
  template <class Function>
  std::invoke_result_t<Function> translated(Function function) {
    try {
      return function();
    } catch (const PeerLostError& e) {
      throw PeerLostError(e.what(), in_group(e.ranks()));
    } catch (const TimeoutError& e) {
      throw TimeoutError(e.what(), in_group(e.ranks()));
    } catch (const MismatchError& e) {
      throw MismatchError(e.what(), in_group(e.ranks()));
    } catch (const CommunicationError& e) {
      throw CommunicationError(e.what(), in_group(e.ranks()));
    }
  }
  std::vector<int> in_group(const std::vector<int>& local_ranks) const {
    std::vector<int> ranks;
    for (const int local : local_ranks) ranks.push_back(members_[static_cast<std::size_t>(local)]);
    return ranks;
  }

  std::shared_ptr<shared_memory::Engine> engine_;
  std::vector<int> members_;
  Duration patience_;
};

// What an operation moves its data with.
struct Transports {
  HostMap map;
  // The ranks of other hosts that data may go to or come from, whatever the collective; each has this rank
  // among its own. Headers are compared with all of them before that. exchange() alone goes beyond them: its
  // messages have sizes of their own.
  std::vector<int> peers;
  // Collectives among the ranks of this host. Two of them, because every engine's collectives must start in
  // the same order on all ranks: `intra_host_reduce` is used by the pipeline's first thread,
  // `intra_host_broadcast` by its second. Null on a host with one rank.
  std::unique_ptr<HostGroup> intra_host_reduce;
  std::unique_ptr<HostGroup> intra_host_broadcast;
  std::unique_ptr<OuterLink> between_hosts;
};

// One collective over several hosts, cut into chunks. Each chunk goes through two steps, which the pipeline
// runs on two threads, so that the link between hosts is busy with one chunk while others are reduced or
// handed out within the host. Both see the chunks in order.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::size_t chunks() const = 0;
  // Collects what other hosts need of this one, and starts sending and receiving.
  virtual void first(std::size_t chunk, Transports& transports, const Deadline& deadline) = 0;
  // Waits for what comes from other hosts, and hands it to the ranks of this host.
  virtual void second(std::size_t chunk, Transports& transports, const Deadline& deadline) = 0;
};

// A rank that is missing is named by those who wait for it, not by those who wait for them: what may be the
// consequence of another wait gives up this much later. Headers, which say who is missing, end at the
// deadline; then what ranks of a host wait for in each other; then data from other hosts; last what this host
// hands out.
constexpr Duration kIntraHostReduceGrace = std::chrono::milliseconds(250);
constexpr Duration kDataGrace = std::chrono::seconds(1);
constexpr Duration kIntraHostBroadcastGrace = std::chrono::seconds(2);

// Chunks of an operation over `bytes`: large enough that messages are efficient, small enough that several
// fit under way.
constexpr std::size_t kChunkBytes = std::size_t{2} << 20;

}  // namespace rondo::hierarchical
