#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "rondo/backend/group.h"

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

}  // namespace rondo
