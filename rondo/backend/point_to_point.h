#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/channel/channel.h"
#include "rondo/channel/failure.h"
#include "rondo/channel/store.h"

namespace rondo {

// A message between this rank and another one.
struct PeerMessage {
  at::Tensor tensor;  // contiguous; the data to send or the buffer to fill
  int peer = 0;       // rank in the group
  int tag = 0;        // tag of send()
};

// Starts sends and receives as one operation. Returns works that must all be waited for before any of the
// tensors is used. Skips tensors without elements, on both sides.
//
// Over an engine that honours tags (EngineTraits), messages are matched by tag, and messages of several calls
// may be started in any order. Over other engines (NCCL) tags are ignored for device tensors: the n-th
// exchange that a rank starts with a peer matches the n-th that the peer starts with it, and messages in one
// direction match in the order of these lists. Messages in both directions in one exchange do not block each
// other; in two exchanges the second waits for the first, so all ranks start exchanges in one order. Over
// such an engine the first exchange of a group needs all of its ranks, unless a collective came before.
//
// One thread at a time uses a group. Does not block, except for the engine's own set-up. Throws UsageError if
// the tensors are on several devices, and the errors of the engine.
std::vector<c10::intrusive_ptr<c10d::Work>> start_exchange(const Group& group,
                                                           const std::vector<PeerMessage>& sends,
                                                           const std::vector<PeerMessage>& receives);

// Returns whether messages of tensors on `device` are matched by the order of exchanges, and not by tags.
bool matches_by_order(const Group& group, c10::Device device);

// A channel over the send and recv of any c10d backend on CPU tensors (Gloo, MPI, native), so that plans run
// on every c10d backend. A received message is delivered whole, from a buffer that the channel keeps.
//
// Failures are detected as fast as the backend detects them. Ranks publish their unfinished peers in the
// store, so that a rank that only sees its neighbour fail still names the culprit. If the store's host is
// lost, it names the neighbour.
class PointToPointChannel final : public Channel {
 public:
  // Ranks are those of `backend`, which only the channel uses during its lifetime. `name` must be distinct
  // for each channel that shares a store. `timeout` bounds an exchange without a deadline; with
  // Duration::max() the timeout of the backend's own operations applies.
  PointToPointChannel(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<Store> store,
                      std::string name, Duration timeout);

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
  // A wait of c10d cannot be cancelled: a cancelled exchange ends after its current wait. Backends that
  // compare tags and sizes report a mismatch; with others the exchange ends at the deadline.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                const Wait& wait) override;

 private:
  void run(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const Wait& wait);
  // Waits for `work` and removes its peer from `needed`. `needed` has the peers of unfinished messages, this
  // one last.
  void finish(c10d::Work& work, std::vector<int>& needed, const Deadline& deadline);
  [[noreturn]] void fail(const std::vector<int>& needed, const Deadline& deadline, const std::string& reason);
  int find_culprit(const std::vector<int>& needed, bool near_deadline);
  std::optional<std::string> await_answer(int rank, Duration limit);
  void close_connections();
  std::string key(int rank) const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<Store> store_;
  std::string name_;
  Duration timeout_;
  std::vector<at::Tensor> buffers_;        // for received messages, kept between exchanges
  std::optional<ChannelFailure> failure_;  // the first one
};

}  // namespace rondo
