#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "rondo/backend/hierarchical/outer_link.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/collective/dtype.h"
#include "rondo/collective/reduction.h"
#include "rondo/collective/shared_memory/engine.h"

namespace rondo::hierarchical {

// A map from the ranks of a group to hosts. Ranks may be numbered in any order over hosts, and hosts may have
// different numbers of them.
class HostMap {
 public:
  // `hosts` has one entry per rank, equal for ranks of one host.
  HostMap(const std::vector<std::string>& hosts, int rank);

  int host_count() const { return static_cast<int>(members_.size()); }
  // Group ranks on a host, ascending. Hosts are numbered in the order of their lowest ranks.
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // Position among the members of the rank's host.
  int local_rank_of(int rank) const { return local_rank_of_[static_cast<std::size_t>(rank)]; }

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(host_of_.size()); }
  int host() const { return host_of(rank_); }
  int local_rank() const { return local_rank_of(rank_); }
  int host_size(int host) const { return static_cast<int>(members(host).size()); }
  int host_size() const { return host_size(host()); }
  // Number of ranks on the smallest host.
  int smallest_host() const;
  // Whether all hosts have equally many ranks.
  bool even() const;
  // Returns the rank of `host` that communicates with a rank with `local_rank` on another host: the one of
  // the same local rank, wrapped around.
  int counterpart(int host, int local_rank) const {
    return members(host)[static_cast<std::size_t>(local_rank % host_size(host))];
  }
  // Returns whether this rank communicates with `rank` of another host.
  bool communicates_with(int rank) const {
    return host_of(rank) != host() && (counterpart(host_of(rank), local_rank()) == rank ||
                                       counterpart(host(), local_rank_of(rank)) == rank_);
  }

 private:
  int rank_;
  std::vector<std::vector<int>> members_;
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
};

// Collectives among the ranks of one host. Roots and pieces are numbered by local rank; the ranks in errors
// are those of the whole group.
//
// Buffers have no owner that outlives a failure. They need none, because no peer writes to another rank's
// memory: start() refuses an in-place all_reduce, which would.
class HostGroup {
 public:
  // Waits may exceed their deadline by up to `patience`.
  HostGroup(std::shared_ptr<shared_memory::Engine> engine, std::vector<int> members, Duration patience)
      : engine_(std::move(engine)), members_(std::move(members)), patience_(patience) {}

  std::uint64_t start(CollectiveRequest request) {
    if (request.kind == OperationKind::all_reduce)
      throw UsageError(
          "an all_reduce within a host may write to a peer's buffer after that peer has given up");
    return translated([&] { return engine_->start(std::move(request)); });
  }
  // Blocks until a collective, and so all before it, has completed.
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

// The map and the engines that an operation communicates through.
struct Transports {
  HostMap map;
  // Ranks of other hosts that this rank may exchange data with in any collective; the relation is symmetric.
  // Headers are compared with all of them before the data. Only exchange() communicates with other ranks too:
  // its messages have sizes of their own.
  std::vector<int> peers;
  // Collectives among the ranks of this host. Two engines, because every engine's collectives must start in
  // the same order on all ranks: the executor's first thread uses `intra_host_reduce`, its second
  // `intra_host_broadcast`. Null on a host with one rank.
  std::unique_ptr<HostGroup> intra_host_reduce;
  std::unique_ptr<HostGroup> intra_host_broadcast;
  std::unique_ptr<OuterLink> between_hosts;
};

// A collective over several hosts, cut into chunks. Each chunk goes through two steps, which the executor
// runs on two threads, so that the link between hosts transfers one chunk while others are reduced or
// broadcast within the host. Both threads process the chunks in order.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::size_t chunks() const = 0;
  // Reduces or copies the data for other hosts, and starts sending and receiving.
  virtual void first(std::size_t chunk, Transports& transports, const Deadline& deadline) = 0;
  // Waits for data from other hosts, and distributes it to the ranks of this host.
  virtual void second(std::size_t chunk, Transports& transports, const Deadline& deadline) = 0;
};

// Extra time of waits that may fail as a consequence of another wait, so that the wait for the missing rank
// fails first and names it. Headers, which identify a missing rank, end at the deadline; then waits within a
// host in the first step; then data from other hosts; last the broadcast within the host.
constexpr Duration kIntraHostReduceGrace = std::chrono::milliseconds(250);
constexpr Duration kDataGrace = std::chrono::seconds(1);
constexpr Duration kIntraHostBroadcastGrace = std::chrono::seconds(2);

// Chunk size of an operation: large enough for efficient messages, small enough that several are in flight.
constexpr std::size_t kChunkBytes = std::size_t{2} << 20;

// A base of the operations in transfers.h: a piece cut into chunks, and messages to wait for.
class ChunkedOperation : public Operation {
 public:
  ChunkedOperation(const CollectiveRequest& request, std::size_t pieces_together)
      : request_(request), width_(element_bytes(request.type)) {
    chunk_elements_ = std::max<std::uint64_t>(1, kChunkBytes / width_ / pieces_together);
    chunks_ = std::max<std::size_t>(1, (request.elements + chunk_elements_ - 1) / chunk_elements_);
    messages_.resize(chunks_);
  }
  std::size_t chunks() const override { return chunks_; }

 protected:
  using Transfer = OuterLink::Transfer;
  using Lane = OuterLink::Lane;

  // Messages of a chunk in flight, from its first to its second step.
  struct Messages {
    std::vector<Transfer> sends;
    std::vector<Transfer> receives;
    std::vector<std::vector<std::byte>> buffers;
  };
  Messages& messages(std::size_t chunk) { return messages_[chunk]; }
  void wait_for(std::vector<Transfer>& transfers, Transports& transports, const Deadline& deadline) {
    for (Transfer& transfer : transfers) transports.between_hosts->wait(transfer, deadline);
    transfers.clear();
  }

  std::size_t offset(std::size_t chunk) const { return chunk * chunk_elements_ * width_; }
  std::uint64_t elements(std::size_t chunk) const {
    return std::min<std::uint64_t>(
        chunk_elements_,
        request_.elements - std::min<std::uint64_t>(chunk * chunk_elements_, request_.elements));
  }
  std::size_t bytes(std::size_t chunk) const { return elements(chunk) * width_; }
  // Returns a request of `kind` for one chunk, without buffers.
  CollectiveRequest step(OperationKind kind, std::size_t chunk, int root = 0) const {
    CollectiveRequest step;
    step.kind = kind;
    step.type = request_.type;
    step.reduction = request_.reduction;
    step.root = root;
    step.elements = elements(chunk);
    step.call = request_.call;
    return step;
  }
  static Pieces one_piece(std::byte* data, std::size_t size) { return {data, size, {}}; }

  // Combines the sources into `destination` in host order; averages weight each host by its ranks.
  void combine(const std::vector<const std::byte*>& sources, std::byte* destination, std::uint64_t count,
               const HostMap& map) const {
    std::vector<double> weights;
    if (request_.reduction == Reduction::average) {
      for (int host = 0; host < map.host_count(); ++host) weights.push_back(map.host_size(host));
    }
    rondo::reduce({request_.type, request_.reduction, sources, {&destination, 1}, count, weights});
  }

  CollectiveRequest request_;
  std::size_t width_;

 private:
  std::uint64_t chunk_elements_;
  std::size_t chunks_;
  std::vector<Messages> messages_;
};

}  // namespace rondo::hierarchical
