#include <cstring>

#include "rondo/backend/hierarchical/chunked.h"
#include "rondo/backend/hierarchical/transfers.h"

namespace rondo::hierarchical {
namespace {

class ReduceScatter final : public ChunkedOperation {
 public:
  ReduceScatter(const CollectiveRequest& request, const HostMap& map)
      : ChunkedOperation(request, static_cast<std::size_t>(map.world_size())) {}

  void first(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    const HostMap& map = transports.map;
    Messages& under_way = messages(chunk);
    const auto ranks = static_cast<std::size_t>(map.world_size());
    // By rank the sums that this rank makes, then by host what arrives for it.
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
  // Who on this host adds up the host's part of a rank's piece.
  static int adder_of(int rank, const HostMap& map) {
    return map.counterpart(map.host(), map.local_rank_of(rank));
  }

  // This host's part of a rank's piece: what this rank has added up, or alone on its host just its input.
  std::byte* sum_for(int rank, std::size_t chunk) {
    std::vector<std::byte>& sum = messages(chunk).buffers[static_cast<std::size_t>(rank)];
    return sum.empty() ? request_.input.at(static_cast<std::size_t>(rank)) + offset(chunk) : sum.data();
  }

  // Where the part of another host comes in. The first one's is the output itself, which spares a copy,
  // unless that is this rank's input too.
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
        // The caller's input stays as it is.
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

std::unique_ptr<Operation> reduce_scatter(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<ReduceScatter>(request, map);
}

}  // namespace rondo::hierarchical
