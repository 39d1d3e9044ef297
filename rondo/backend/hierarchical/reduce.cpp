#include <cstring>

#include "rondo/backend/hierarchical/chunked.h"
#include "rondo/backend/hierarchical/transfers.h"

namespace rondo::hierarchical {
namespace {

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
    if (is_leader_ && !is_root_) {  // whose buffer must stay as it is
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

}  // namespace

std::unique_ptr<Operation> reduce(const CollectiveRequest& request, const HostMap& map) {
  return std::make_unique<Reduce>(request, map);
}

}  // namespace rondo::hierarchical
