#include "rondo/backend/hierarchical/transfers.h"

#include "rondo/backend/hierarchical/transports.h"
#include "rondo/collective/schedule.h"

namespace rondo::hierarchical {
namespace {

class RankOrderSum final : public ChunkedOperation {
 public:
  RankOrderSum(const CollectiveRequest& request, const HostMap& map)
      : ChunkedOperation(request, scatters(request) ? static_cast<std::size_t>(map.world_size()) : 1),
        world_(map.world_size()) {}

  void first(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    const HostMap& map = transports.map;
    Messages& under_way = messages(chunk);
    const Piece own = piece(chunk, map.rank());
    under_way.buffers.resize(static_cast<std::size_t>(world_));
    for (int rank = 0; rank < world_; ++rank) {
      if (rank == map.rank()) continue;
      std::vector<std::byte>& buffer = under_way.buffers[static_cast<std::size_t>(rank)];
      buffer.resize(own.bytes);
      if (map.host_of(rank) == map.host() || own.bytes == 0) continue;
      under_way.receives.push_back(
          transports.between_hosts->receive(rank, Lane::first, buffer.data(), buffer.size()));
    }
    // Starts with the next rank, so that ranks do not all send to the first one at once.
    for (int step = 1; step < world_; ++step) {
      const int rank = (map.rank() + step) % world_;
      const Piece theirs = piece(chunk, rank);
      if (map.host_of(rank) == map.host() || theirs.bytes == 0) continue;
      under_way.sends.push_back(transports.between_hosts->send(rank, Lane::first, theirs.data, theirs.bytes));
    }
    exchange_within_host(chunk, transports, deadline);
  }

  void second(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    Messages& under_way = messages(chunk);
    wait_for(under_way.receives, transports, deadline);
    // Results overwrite the buffers of the sends.
    wait_for(under_way.sends, transports, deadline);
    add(chunk, transports.map);
    under_way.buffers.clear();
    if (scatters(request_)) return;
    send_sums(chunk, transports, deadline);
    intra_host_broadcast(chunk, transports, deadline);
  }

 private:
  static bool scatters(const CollectiveRequest& request) {
    return request.kind == OperationKind::reduce_scatter;
  }

  // This rank's contribution to the part of a chunk that `rank` sums.
  struct Piece {
    std::byte* data;
    std::size_t bytes;
  };
  Piece piece(std::size_t chunk, int rank) const {
    if (scatters(request_)) {
      return {request_.input.at(static_cast<std::size_t>(rank)) + offset(chunk), bytes(chunk)};
    }
    const collective::Range part =
        collective::piece_of({collective::Buffer::data, offset(chunk), bytes(chunk)}, width_, world_, rank);
    return {request_.input.base + part.offset, part.bytes};
  }

  void exchange_within_host(std::size_t chunk, Transports& transports, const Deadline& deadline) {
    if (!transports.intra_host_reduce) return;
    const HostMap& map = transports.map;
    const std::size_t own_bytes = piece(chunk, map.rank()).bytes;
    CollectiveRequest within;
    within.kind = OperationKind::all_to_all;
    within.call = request_.call;
    for (const int member : map.members(map.host())) {
      const Piece theirs = piece(chunk, member);
      within.input.list.push_back(theirs.data);
      within.input_bytes.push_back(theirs.bytes);
      // This rank's piece stays in place.
      within.output.list.push_back(member == map.rank()
                                       ? theirs.data
                                       : messages(chunk).buffers[static_cast<std::size_t>(member)].data());
      within.output_bytes.push_back(own_bytes);
      within.elements = std::max<std::uint64_t>(within.elements, theirs.bytes);
    }
    transports.intra_host_reduce->run(within, deadline);
  }

  void add(std::size_t chunk, const HostMap& map) {
    const Piece own = piece(chunk, map.rank());
    if (own.bytes == 0) return;
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < world_; ++rank) {
      sources.push_back(rank == map.rank() ? own.data
                                           : messages(chunk).buffers[static_cast<std::size_t>(rank)].data());
    }
    std::byte* const destination = scatters(request_) ? request_.output.base + offset(chunk) : own.data;
    rondo::reduce({request_.type, request_.reduction, sources, {&destination, 1}, own.bytes / width_, {}});
  }

  // Returns the rank on this host that receives the sum of a rank of another host.
  static int receiver_of(int rank, const HostMap& map) {
    return map.counterpart(map.host(), map.local_rank_of(rank));
  }

  // Sends each sum once to every other host.
  void send_sums(std::size_t chunk, Transports& transports, const Deadline& deadline) {
    const HostMap& map = transports.map;
    Messages& under_way = messages(chunk);
    for (int rank = 0; rank < world_; ++rank) {
      const Piece theirs = piece(chunk, rank);
      if (map.host_of(rank) == map.host() || receiver_of(rank, map) != map.rank() || theirs.bytes == 0)
        continue;
      under_way.receives.push_back(
          transports.between_hosts->receive(rank, Lane::second, theirs.data, theirs.bytes));
    }
    const Piece own = piece(chunk, map.rank());
    for (int step = 1; step < map.host_count() && own.bytes > 0; ++step) {
      const int host = (map.host() + step) % map.host_count();
      under_way.sends.push_back(transports.between_hosts->send(map.counterpart(host, map.local_rank()),
                                                               Lane::second, own.data, own.bytes));
    }
    wait_for(under_way.receives, transports, deadline);
    wait_for(under_way.sends, transports, deadline);
  }

  void intra_host_broadcast(std::size_t chunk, Transports& transports, const Deadline& deadline) {
    if (!transports.intra_host_broadcast) return;
    const HostMap& map = transports.map;
    std::uint64_t last = 0;
    for (int rank = 0; rank < world_; ++rank) {
      const Piece theirs = piece(chunk, rank);
      const int from = map.host_of(rank) == map.host() ? rank : receiver_of(rank, map);
      CollectiveRequest step;
      step.kind = OperationKind::broadcast;
      step.root = map.local_rank_of(from);
      step.call = request_.call;
      step.elements = theirs.bytes;
      step.input = step.output = one_piece(theirs.data, theirs.bytes);
      last = transports.intra_host_broadcast->start(step);
    }
    transports.intra_host_broadcast->wait(last, deadline);
  }

  const int world_;
};

}  // namespace

std::unique_ptr<Operation> rank_order_sum(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<RankOrderSum>(request, map);
}

}  // namespace rondo::hierarchical
