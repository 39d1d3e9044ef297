#include "rondo/backend/hierarchical/chunked.h"
#include "rondo/backend/hierarchical/transfers.h"

namespace rondo::hierarchical {
namespace {

class Broadcast final : public ChunkedOperation {
 public:
  Broadcast(const CollectiveRequest& request, const HostMap& map) : ChunkedOperation(request, 1) {
    // Each link of the chain is the counterpart of the one before: only ranks that deal with each other
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

  // What the root sends goes in the first step, what others pass on in the second one, each on the lane of
  // its step: whatever is under way beside it, both ends then start the messages of a lane in one order.
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
    // What was sent of the chunk before must be gone by now, or soon.
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

  int relay_;      // hands out on this host
  int from_ = -1;  // of the relay: ranks before and behind it in the chain of hosts
  int to_ = -1;
};

}  // namespace

std::unique_ptr<Operation> broadcast(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<Broadcast>(request, map);
}

}  // namespace rondo::hierarchical
