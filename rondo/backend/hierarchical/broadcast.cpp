#include "rondo/backend/hierarchical/chunked.h"
#include "rondo/backend/hierarchical/transfers.h"

namespace rondo::hierarchical {
namespace {

class Broadcast final : public ChunkedOperation {
 public:
  Broadcast(const CollectiveRequest& request, const HostMap& map) : ChunkedOperation(request, 1) {
    const int root_host = map.host_of(request.root);
    const int root_local_rank = map.local_rank_of(request.root);
    relay_ = map.counterpart(map.host(), root_local_rank);
    const int hosts = map.host_count();
    const int position = (map.host() - root_host + hosts) % hosts;
    if (map.rank() != relay_) return;
    if (position > 0) from_ = map.counterpart((map.host() + hosts - 1) % hosts, root_local_rank);
    if (position + 1 < hosts) to_ = map.counterpart((map.host() + 1) % hosts, root_local_rank);
  }

  void first(std::size_t chunk, Transports& transports, const Deadline&) override {
    if (from_ >= 0) {
      messages(chunk).receives.push_back(
          transports.between_hosts->receive(from_, Lane::first, data(chunk), bytes(chunk)));
    } else if (to_ >= 0) {
      forward(chunk, transports);
    }
  }

  void second(std::size_t chunk, Transports& transports, const Deadline& deadline) override {
    if (from_ >= 0) {
      wait_for(messages(chunk).receives, transports, deadline);
      if (to_ >= 0) forward(chunk, transports);
    }
    CollectiveRequest intra_host_broadcast =
        step(OperationKind::broadcast, chunk, transports.map.local_rank_of(relay_));
    intra_host_broadcast.reduction = Reduction::sum;
    intra_host_broadcast.input = one_piece(data(chunk), bytes(chunk));
    intra_host_broadcast.output = intra_host_broadcast.input;
    if (transports.intra_host_broadcast) transports.intra_host_broadcast->run(intra_host_broadcast, deadline);
    // What was sent of the chunk before must be gone by now, or soon.
    if (chunk > 0) wait_for(messages(chunk - 1).sends, transports, deadline);
    if (chunk + 1 == chunks()) wait_for(messages(chunk).sends, transports, deadline);
  }

 private:
  std::byte* data(std::size_t chunk) const { return request_.input.base + offset(chunk); }
  void forward(std::size_t chunk, Transports& transports) {
    messages(chunk).sends.push_back(
        transports.between_hosts->send(to_, Lane::first, data(chunk), bytes(chunk)));
  }

  int relay_;      // hands out on this host
  int from_ = -1;  // of the relay: ranks before and behind it in the chain of hosts
  int to_ = -1;
};

}  // namespace

std::unique_ptr<Operation> broadcast(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<Broadcast>(request, map);
}

}  // namespace rondo::hierarchical
