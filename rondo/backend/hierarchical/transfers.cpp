#include "rondo/backend/hierarchical/transfers.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "rondo/backend/hierarchical/transports.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::hierarchical {
namespace {

class Broadcast final : public ChunkedOperation {
 public:
  Broadcast(const CollectiveRequest& request, const HostMap& map) : ChunkedOperation(request, 1) {
    // Each relay of the chain is the counterpart of the previous one, because only ranks that communicate
    // compare headers.
    const int hosts = map.host_count();
    const auto next_to = [&](int rank) {
      return map.counterpart((map.host_of(rank) + 1) % hosts, map.local_rank_of(rank));
    };
    int before = -1;
    relay_ = request.root;
    while (map.host_of(relay_) != map.host()) {
      before = relay_;
      relay_ = next_to(before);
    }
    if (map.rank() != relay_) return;
    from_ = before;
    const int next = next_to(relay_);
    if (map.host_of(next) != map.host_of(request.root)) to_ = next;
  }

  // The root sends in the first step; other ranks forward in the second. Each uses the lane of its step, so
  // that both ends start the messages of a lane in one order.
  void first(std::size_t chunk, Transports& transports, const Deadline&) override {
    if (from_ == request_.root) receive(chunk, transports, Lane::first);
    if (from_ < 0 && to_ >= 0) forward(chunk, transports, Lane::first);
  }

  void second(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    if (from_ >= 0) {
      if (from_ != request_.root) receive(chunk, transports, Lane::second);
      wait_for(messages(chunk).receives, transports, deadline);
      if (to_ >= 0) forward(chunk, transports, Lane::second);
    }
    CollectiveRequest intra_host_broadcast =
        step(OperationKind::broadcast, chunk, transports.map.local_rank_of(relay_));
    intra_host_broadcast.reduction = Reduction::sum;
    intra_host_broadcast.input = one_piece(data(chunk), bytes(chunk));
    intra_host_broadcast.output = intra_host_broadcast.input;
    if (transports.intra_host_broadcast) transports.intra_host_broadcast->run(intra_host_broadcast, deadline);
    // The sends of the previous chunk are complete by now, or will be soon.
    if (chunk > 0) wait_for(messages(chunk - 1).sends, transports, deadline);
    if (chunk + 1 == chunks()) wait_for(messages(chunk).sends, transports, deadline);
  }

 private:
  std::byte* data(std::size_t chunk) const { return request_.input.base + offset(chunk); }
  void receive(std::size_t chunk, Transports& transports, Lane lane) {
    messages(chunk).receives.push_back(
        transports.between_hosts->receive(from_, lane, data(chunk), bytes(chunk)));
  }
  void forward(std::size_t chunk, Transports& transports, Lane lane) {
    messages(chunk).sends.push_back(transports.between_hosts->send(to_, lane, data(chunk), bytes(chunk)));
  }

  int relay_;      // rank of this host that broadcasts within it
  int from_ = -1;  // the relay's neighbours in the chain of hosts
  int to_ = -1;
};

class Reduce final : public ChunkedOperation {
 public:
  Reduce(const CollectiveRequest& request, const HostMap& map)
      : ChunkedOperation(request, 1),
        leader_(map.counterpart(map.host(), map.local_rank_of(request.root))),
        is_leader_(map.rank() == leader_),
        is_root_(map.rank() == request.root) {}

  void first(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    const HostMap& map = transports.map;
    std::vector<std::vector<std::byte>>& buffers = messages(chunk).buffers;
    std::byte* own = data(chunk);
    if (is_leader_ && !is_root_) {  // the caller's input must stay unchanged
      buffers.emplace_back(own, own + bytes(chunk));
      own = buffers.back().data();
    }
    CollectiveRequest within = step(OperationKind::reduce, chunk, map.local_rank_of(leader_));
    within.input = one_piece(own, bytes(chunk));
    within.output = within.input;
    if (transports.intra_host_reduce) transports.intra_host_reduce->run(within, deadline);
    if (!is_leader_) return;
    if (!is_root_) {
      messages(chunk).sends.push_back(
          transports.between_hosts->send(request_.root, Lane::first, own, bytes(chunk)));
      return;
    }
    buffers.resize(static_cast<std::size_t>(map.host_count()));
    for (int host = 0; host < map.host_count(); ++host) {
      if (host == map.host()) continue;
      std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(host)];
      buffer.resize(bytes(chunk));
      messages(chunk).receives.push_back(transports.between_hosts->receive(
          map.counterpart(host, map.local_rank()), Lane::first, buffer.data(), buffer.size()));
    }
  }

  void second(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    wait_for(messages(chunk).sends, transports, deadline);
    wait_for(messages(chunk).receives, transports, deadline);
    if (is_root_) {
      std::vector<const std::byte*> sources;
      for (int host = 0; host < transports.map.host_count(); ++host) {
        sources.push_back(host == transports.map.host()
                              ? data(chunk)
                              : messages(chunk).buffers[static_cast<std::size_t>(host)].data());
      }
      combine(sources, data(chunk), elements(chunk), transports.map);
    }
    messages(chunk).buffers.clear();
  }

 private:
  std::byte* data(std::size_t chunk) const { return request_.input.base + offset(chunk); }

  int leader_;
  bool is_leader_;
  bool is_root_;
};

class AllGather final : public ChunkedOperation {
 public:
  AllGather(const CollectiveRequest& request, const HostMap& map)
      : ChunkedOperation(request, static_cast<std::size_t>(map.world_size())) {}

  void first(std::size_t chunk, Transports& transports, const Deadline&) override {
    const HostMap& map = transports.map;
    for (int rank = 0; rank < map.world_size(); ++rank) {
      if (map.host_of(rank) == map.host() || receiver_of(rank, map) != map.rank()) continue;
      messages(chunk).receives.push_back(
          transports.between_hosts->receive(rank, Lane::first, piece(rank, chunk), bytes(chunk)));
    }
    for (int other = 1; other < map.host_count(); ++other) {
      const int host = (map.host() + other) % map.host_count();
      messages(chunk).sends.push_back(
          transports.between_hosts->send(map.counterpart(host, map.local_rank()), Lane::first,
                                         request_.input.base + offset(chunk), bytes(chunk)));
    }
  }

  void second(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    const HostMap& map = transports.map;
    wait_for(messages(chunk).receives, transports, deadline);
    if (transports.intra_host_broadcast) {
      CollectiveRequest local = step(OperationKind::all_gather, chunk);
      local.input = one_piece(request_.input.base + offset(chunk), bytes(chunk));
      for (const int rank : map.members(map.host())) local.output.list.push_back(piece(rank, chunk));
      std::uint64_t last = transports.intra_host_broadcast->start(local);
      for (int rank = 0; rank < map.world_size(); ++rank) {
        if (map.host_of(rank) == map.host()) continue;
        CollectiveRequest remote =
            step(OperationKind::broadcast, chunk, map.local_rank_of(receiver_of(rank, map)));
        remote.input = one_piece(piece(rank, chunk), bytes(chunk));
        remote.output = remote.input;
        last = transports.intra_host_broadcast->start(remote);
      }
      transports.intra_host_broadcast->wait(last, deadline);
    } else if (piece(map.rank(), chunk) != request_.input.base + offset(chunk)) {
      std::copy_n(request_.input.base + offset(chunk), bytes(chunk), piece(map.rank(), chunk));
    }
    wait_for(messages(chunk).sends, transports, deadline);
  }

 private:
  std::byte* piece(int rank, std::size_t chunk) const {
    return request_.output.at(static_cast<std::size_t>(rank)) + offset(chunk);
  }
  // Returns the rank on this host that receives the piece of a rank of another host.
  static int receiver_of(int rank, const HostMap& map) {
    return map.counterpart(map.host(), map.local_rank_of(rank));
  }
};

class ReduceScatter final : public ChunkedOperation {
 public:
  ReduceScatter(const CollectiveRequest& request, const HostMap& map)
      : ChunkedOperation(request, static_cast<std::size_t>(map.world_size())) {}

  void first(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    const HostMap& map = transports.map;
    Messages& under_way = messages(chunk);
    const auto ranks = static_cast<std::size_t>(map.world_size());
    // First the sums that this rank computes, by rank; then the received parts, by host.
    under_way.buffers.resize(ranks + static_cast<std::size_t>(map.host_count()));
    for (int host = 0; host < map.host_count(); ++host) {
      if (host == map.host()) continue;
      under_way.receives.push_back(transports.between_hosts->receive(
          map.counterpart(host, map.local_rank()), Lane::first, arriving(host, chunk, map), bytes(chunk)));
    }
    if (transports.intra_host_reduce) add_within_host(chunk, transports, deadline);
    for (int rank = 0; rank < map.world_size(); ++rank) {
      if (map.host_of(rank) == map.host() || adder_of(rank, map) != map.rank()) continue;
      under_way.sends.push_back(
          transports.between_hosts->send(rank, Lane::first, sum_for(rank, chunk), bytes(chunk)));
    }
  }

  void second(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    const HostMap& map = transports.map;
    Messages& under_way = messages(chunk);
    wait_for(under_way.receives, transports, deadline);
    std::vector<const std::byte*> sources;
    for (int host = 0; host < map.host_count(); ++host) {
      sources.push_back(host == map.host() ? sum_for(map.rank(), chunk) : arriving(host, chunk, map));
    }
    combine(sources, request_.output.base + offset(chunk), elements(chunk), map);
    wait_for(under_way.sends, transports, deadline);
    under_way.buffers.clear();
  }

 private:
  // Returns the rank on this host that sums the host's contributions to a rank's piece.
  static int adder_of(int rank, const HostMap& map) {
    return map.counterpart(map.host(), map.local_rank_of(rank));
  }

  // Returns this host's sum for a rank's piece. A rank alone on its host returns its input.
  std::byte* sum_for(int rank, std::size_t chunk) {
    std::vector<std::byte>& sum = messages(chunk).buffers[static_cast<std::size_t>(rank)];
    return sum.empty() ? request_.input.at(static_cast<std::size_t>(rank)) + offset(chunk) : sum.data();
  }

  // Returns the buffer for another host's part. The first host's part goes directly to the output, which
  // saves a copy, unless the output is this rank's input too.
  std::byte* arriving(int host, std::size_t chunk, const HostMap& map) {
    std::byte* const output = request_.output.base + offset(chunk);
    const int first = map.host() == 0 ? 1 : 0;
    const bool in_place = output == request_.input.at(static_cast<std::size_t>(map.rank())) + offset(chunk);
    if (host == first && !in_place) return output;
    std::vector<std::byte>& buffer =
        messages(chunk).buffers[static_cast<std::size_t>(map.world_size() + host)];
    buffer.resize(bytes(chunk));
    return buffer.data();
  }

  void add_within_host(std::size_t chunk, Transports& transports, const Deadline& deadline) {
    const HostMap& map = transports.map;
    std::uint64_t last = 0;
    for (int rank = 0; rank < map.world_size(); ++rank) {
      std::byte* own = request_.input.at(static_cast<std::size_t>(rank)) + offset(chunk);
      const int adder = adder_of(rank, map);
      if (adder == map.rank()) {
        // The caller's input stays unchanged.
        std::vector<std::byte>& sum = messages(chunk).buffers[static_cast<std::size_t>(rank)];
        sum.assign(own, own + bytes(chunk));
        own = sum.data();
      }
      CollectiveRequest within = step(OperationKind::reduce, chunk, map.local_rank_of(adder));
      within.input = one_piece(own, bytes(chunk));
      within.output = within.input;
      last = transports.intra_host_reduce->start(within);
    }
    transports.intra_host_reduce->wait(last, deadline);
  }
};

}  // namespace

std::unique_ptr<Operation> broadcast(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<Broadcast>(request, map);
}

std::unique_ptr<Operation> reduce(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<Reduce>(request, map);
}

std::unique_ptr<Operation> all_gather(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<AllGather>(request, map);
}

std::unique_ptr<Operation> reduce_scatter(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<ReduceScatter>(request, map);
}

namespace {

using Lane = OuterLink::Lane;
using Transfer = OuterLink::Transfer;
// Messages by rank; nullopt means no message, in contrast to an empty one.
using Messages = std::vector<std::optional<std::span<std::byte>>>;

class Exchange final : public Operation {
 public:
  Exchange(const CollectiveRequest& request, const HostMap& map)
      : kind_(request.kind),
        outgoing_(static_cast<std::size_t>(map.world_size())),
        incoming_(outgoing_.size()) {
    const auto root = static_cast<std::size_t>(request.root);
    const bool is_root = map.rank() == request.root;
    for (std::size_t rank = 0; rank < outgoing_.size(); ++rank) {
      switch (kind_) {
        case OperationKind::gather:
          if (rank == root) outgoing_[rank] = {request.input.at(0), request.bytes()};
          if (is_root) incoming_[rank] = {request.output.at(rank), request.bytes()};
          break;
        case OperationKind::scatter:
          if (is_root) outgoing_[rank] = {request.input.at(rank), request.bytes()};
          if (rank == root) incoming_[rank] = {request.output.at(0), request.bytes()};
          break;
        default:
          outgoing_[rank] = {request.input.at(rank), request.input_bytes.at(rank)};
          incoming_[rank] = {request.output.at(rank), request.output_bytes.at(rank)};
      }
    }
  }

  std::size_t chunks() const override { return 1; }

  void first(std::size_t, Transports& transports, const Deadline& deadline) override {
    copy_own(transports.map.rank());
    publish_sizes(transports);
    OuterLink& link = *transports.between_hosts;
    for_each_peer(outgoing_, transports.map, [&](int peer, std::span<std::byte> message) {
      if (!message.empty()) data_.push_back(link.send(peer, Lane::first, message.data(), message.size()));
    });
    check_sizes(transports, deadline);
    for_each_peer(incoming_, transports.map, [&](int peer, std::span<std::byte> message) {
      if (!message.empty()) data_.push_back(link.receive(peer, Lane::first, message.data(), message.size()));
    });
  }

  void second(std::size_t, Transports& transports, const Deadline& deadline) override {
    // Receives first: a failed receive names the missing rank, a failed send only a peer that does not
    // receive.
    for (auto transfer = data_.rbegin(); transfer != data_.rend(); ++transfer)
      transports.between_hosts->wait(*transfer, deadline);
    for (Transfer& transfer : sent_sizes_) transports.between_hosts->wait(transfer, deadline);
  }

 private:
  // Starts with the next rank, so that ranks do not all send to the first one at once.
  template <typename Visit>
  static void for_each_peer(const Messages& messages, const HostMap& map, const Visit& visit) {
    const int ranks = map.world_size();
    for (int step = 1; step < ranks; ++step) {
      const int peer = (map.rank() + step) % ranks;
      if (const auto& message = messages[static_cast<std::size_t>(peer)]) visit(peer, *message);
    }
  }

  void copy_own(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    if (!outgoing_[at] || !incoming_[at]) return;
    require_equal(outgoing_[at]->size(), incoming_[at]->size(), rank, str("rank ", rank), "itself");
    if (outgoing_[at]->data() != incoming_[at]->data())
      std::copy(outgoing_[at]->begin(), outgoing_[at]->end(), incoming_[at]->begin());
  }

  // Sizes go first, because Gloo ends a process that receives more bytes than it expects.
  void publish_sizes(Transports& transports) {
    OuterLink& link = *transports.between_hosts;
    told_.resize(outgoing_.size());
    heard_.resize(incoming_.size());
    for_each_peer(incoming_, transports.map, [&](int peer, std::span<std::byte>) {
      std::uint64_t& size = heard_[static_cast<std::size_t>(peer)];
      received_sizes_.push_back(link.receive(peer, Lane::first, &size, sizeof size));
    });
    for_each_peer(outgoing_, transports.map, [&](int peer, std::span<std::byte> message) {
      std::uint64_t& size = told_[static_cast<std::size_t>(peer)];
      size = message.size();
      sent_sizes_.push_back(link.send(peer, Lane::first, &size, sizeof size));
    });
  }

  void check_sizes(Transports& transports, const Deadline& deadline) {
    OuterLink& link = *transports.between_hosts;
    for (Transfer& transfer : received_sizes_) link.wait(transfer, deadline);
    for_each_peer(incoming_, transports.map, [&](int peer, std::span<std::byte> message) {
      require_equal(heard_[static_cast<std::size_t>(peer)], message.size(), peer,
                    link.name(transports.map.rank()), link.name(peer));
    });
  }

  void require_equal(std::uint64_t comes, std::uint64_t expected, int peer, const std::string& receiver,
                     const std::string& sender) const {
    if (comes == expected) return;
    throw MismatchError(str("ranks disagree: in ", name(kind_), ", ", receiver, " expects ", expected,
                            " bytes from ", sender, ", which sends ", comes),
                        {peer});
  }

  OperationKind kind_;
  Messages outgoing_;
  Messages incoming_;
  std::vector<std::uint64_t> told_;
  std::vector<std::uint64_t> heard_;
  std::vector<Transfer> sent_sizes_;
  std::vector<Transfer> received_sizes_;
  std::vector<Transfer> data_;  // sends, then receives
};

}  // namespace

std::unique_ptr<Operation> exchange(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<Exchange>(request, map);
}

}  // namespace rondo::hierarchical
