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
  at::Tensor tensor;  // contiguous; what is sent, or what receives it
  int peer = 0;       // rank in the group
  int tag = 0;        // as of send()
};

// Starts sends and receives as one operation, and returns what to wait for: all of it, before any of the
// tensors is used. Tensors without elements are left out, here as at the peer.
//
// Over an engine that honours tags (EngineTraits), each message meets the one of its tag, and messages
// of several calls may be started in any order. Over other engines (NCCL) tags mean nothing for tensors of a
// device: the n-th exchange that a rank starts with a peer meets the n-th that the peer starts with it, and
// messages one way meet in the order in which they stand here. Messages both ways in one exchange pass each
// other; in two exchanges the second waits for the first, so all ranks start exchanges in one order. There
// the first exchange of a group needs all of its ranks, unless a collective came before.
//
// One thread at a time uses a group. Does not block, but for the engine's own set-up. Throws UsageError where
// the tensors are on several devices, and what the engine throws.
std::vector<c10::intrusive_ptr<c10d::Work>> start_exchange(const Group& group,
                                                           const std::vector<PeerMessage>& sends,
                                                           const std::vector<PeerMessage>& receives);

// Returns whether messages of tensors on `device` are matched by the order of exchanges, and not by tags.
bool matches_by_order(const Group& group, c10::Device device);

// Channel over the send and recv of any c10d backend on CPU tensors (Gloo, MPI, native): plans run wherever
// c10d does. A received message is handed over whole, from a buffer that the channel keeps.
//
// Failures are found as fast as the backend finds them. Who failed is told through the store, so that ranks
// which only see their neighbour give up still name the rank that is to blame; without the store's host, the
// neighbour.
class PointToPointChannel final : public Channel {
 public:
  // Ranks are those of `backend`, which nobody else uses meanwhile. `name` must be distinct for each channel
  // that shares a store. `timeout` bounds an exchange without a deadline; Duration::max() leaves that to the
  // timeout of the backend's own operations.
  PointToPointChannel(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<Store> store,
                      std::string name, Duration timeout);

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
  // c10d cannot be told to stop waiting: a cancelled exchange ends when what it waits for at that moment
  // does. Tags and sizes that differ are found by backends that compare them, and otherwise end at the
  // deadline.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                const Wait& wait) override;

 private:
  void run(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const Wait& wait);
  // `needed` are the peers of what is not finished, this one last; it is then taken off.
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
