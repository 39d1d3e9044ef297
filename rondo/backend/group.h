#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "rondo/backend/engine/request.h"

namespace rondo {

// A set of ranks that communicate. A value-type handle: copies share the same communicator. Collectives on
// one group must be called in the same order on all of its ranks; one thread at a time may use a group.
class Group {
 public:
  // An empty handle; member() is false.
  Group() = default;
  // Called by Context. `ranks` are the members' ranks in the world, in group order.
  Group(std::string name, std::vector<int> ranks, int rank, Communicator communicator,
        c10::intrusive_ptr<c10d::Store> store);
  // Over an engine of the caller's: what it can do it answers itself (ExtendedBackend), or the default holds.
  Group(std::string name, std::vector<int> ranks, int rank, c10::intrusive_ptr<c10d::Backend> backend,
        c10::intrusive_ptr<c10d::Store> store);

  // Rank of this process within the group, or -1 when it is not a member.
  int rank() const;
  int size() const;                            // number of members
  bool member() const { return rank() >= 0; }  // whether this process is one
  // World ranks of the members; ranks()[i] is group rank i.
  const std::vector<int>& ranks() const;
  const std::string& name() const;  // "world", or a name of its own; the same on all members
  // The engine: strategies talk to it directly. Never null for a member.
  const c10::intrusive_ptr<c10d::Backend>& backend() const;
  // The engine where it answers more than c10d asks, else null.
  ExtendedBackend* extended() const;
  // What the engine can do. Throws UsageError for a rank that is not a member.
  const EngineTraits& traits() const;
  // Key-value store private to this group.
  const c10::intrusive_ptr<c10d::Store>& store() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace rondo
