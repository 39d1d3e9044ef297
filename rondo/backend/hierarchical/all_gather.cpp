#include "rondo/backend/hierarchical/chunked.h"
#include "rondo/backend/hierarchical/transfers.h"

namespace rondo::hierarchical {
namespace {

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
  // Who on this host gets the piece of a rank of another one.
  static int receiver_of(int rank, const HostMap& map) {
    return map.counterpart(map.host(), map.local_rank_of(rank));
  }
};

}  // namespace

std::unique_ptr<Operation> all_gather(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<AllGather>(request, map);
}

}  // namespace rondo::hierarchical
