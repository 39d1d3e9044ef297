#include <algorithm>
#include <optional>
#include <span>

#include "rondo/backend/hierarchical/transfers.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::hierarchical {
namespace {

using Lane = OuterLink::Lane;
using Transfer = OuterLink::Transfer;
// By rank; nothing where no message goes at all, which is not the same as an empty one.
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
    tell_sizes(transports);
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
    // What comes first: a receive says who is missing, a send only that nobody takes it.
    for (auto transfer = data_.rbegin(); transfer != data_.rend(); ++transfer)
      transports.between_hosts->wait(*transfer, deadline);
    for (Transfer& transfer : sent_sizes_) transports.between_hosts->wait(transfer, deadline);
  }

 private:
  // Beginning behind the own rank, so that not all send to the first one at once.
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

  // Gloo ends a process that gets more bytes than it expects, so sizes go first.
  void tell_sizes(Transports& transports) {
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
