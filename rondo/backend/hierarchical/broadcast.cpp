#include "rondo/backend/hierarchical/chunked.h"
#include "rondo/backend/hierarchical/transfers.h"

namespace rondo::hierarchical {
namespace {

class Broadcast final : public ChunkedOperation {
 public:
  Broadcast(const CollectiveRequest& request, const HostMap& map) : ChunkedOperation(request, 1) {
    const int root_host = map.host_of(request.root);
    const int root_place = map.place_of(request.root);
    relay_ = map.counterpart(map.host(), root_place);
    const int hosts = map.host_count();
    const int position = (map.host() - root_host + hosts) % hosts;
    if (map.rank() != relay_) return;
    if (position > 0) from_ = map.counterpart((map.host() + hosts - 1) % hosts, root_place);
    if (position + 1 < hosts) to_ = map.counterpart((map.host() + 1) % hosts, root_place);
  }

  void first(std::size_t chunk, Fabric& fabric, const Deadline&) override {
    if (from_ >= 0) {
      messages(chunk).receives.push_back(
          fabric.between_hosts->receive(from_, Lane::first, data(chunk), bytes(chunk)));
    } else if (to_ >= 0) {
      forward(chunk, fabric);
    }
  }

  void second(std::size_t chunk, Fabric& fabric, const Deadline& deadline) override {
    if (from_ >= 0) {
      wait_for(messages(chunk).receives, fabric, deadline);
      if (to_ >= 0) forward(chunk, fabric);
    }
    CollectiveRequest hand_out = step(OperationKind::broadcast, chunk, fabric.map.place_of(relay_));
    hand_out.reduction = Reduction::sum;
    hand_out.input = one_piece(data(chunk), bytes(chunk));
    hand_out.output = hand_out.input;
    if (fabric.hand_out) fabric.hand_out->run(hand_out, deadline);
    // What was sent of the chunk before must be gone by now, or soon.
    if (chunk > 0) wait_for(messages(chunk - 1).sends, fabric, deadline);
    if (chunk + 1 == chunks()) wait_for(messages(chunk).sends, fabric, deadline);
  }

 private:
  std::byte* data(std::size_t chunk) const { return request_.input.base + offset(chunk); }
  void forward(std::size_t chunk, Fabric& fabric) {
    messages(chunk).sends.push_back(fabric.between_hosts->send(to_, Lane::first, data(chunk), bytes(chunk)));
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
