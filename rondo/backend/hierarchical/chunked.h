#pragma once

#include <algorithm>
#include <vector>

#include "rondo/backend/hierarchical/transports.h"
#include "rondo/collective/dtype.h"
#include "rondo/collective/reduction.h"

namespace rondo::hierarchical {

// What the operations of transfers.h share: a piece cut into chunks, and messages to wait for.
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

  // What a chunk has under way, from its first to its second step.
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
  // One chunk of the request, of `kind`; buffers are left out.
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

  // destination = the sources, in host order, combined; averages count each host's ranks.
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
