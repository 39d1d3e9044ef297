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
  // Used by Context. `ranks` are the members' ranks in the world, in group order.
  Group(std::string name, std::vector<int> ranks, int rank, Communicator communicator,
        c10::intrusive_ptr<c10d::Store> store);
  // Makes a group over a caller's engine, whose traits are its own (ExtendedBackend) or the default.
  Group(std::string name, std::vector<int> ranks, int rank, c10::intrusive_ptr<c10d::Backend> backend,
        c10::intrusive_ptr<c10d::Store> store);

  // Rank of this process within the group, or -1 when it is not a member.
  int rank() const;
  int size() const;                            // number of members
  bool member() const { return rank() >= 0; }  // whether this process is a member
  // World ranks of the members; ranks()[i] is group rank i.
  const std::vector<int>& ranks() const;
  const std::string& name() const;  // "world", or a unique name; the same on all members
  // Engine of the group, which strategies call directly. Never null for a member.
  const c10::intrusive_ptr<c10d::Backend>& backend() const;
  // Engine with rondo's extensions, or null if it has none.
  ExtendedBackend* extended() const;
  // Abilities of the engine. Throws UsageError for a rank that is not a member.
  const EngineTraits& traits() const;
  // Key-value store private to this group.
  const c10::intrusive_ptr<c10d::Store>& store() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace rondo
