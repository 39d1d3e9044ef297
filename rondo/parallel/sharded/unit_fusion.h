#pragma once

#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/sharded/sharding.h"

namespace rondo {

// Units that are gathered, reduced and freed together, or a bucket of what no unit holds.
struct UnitGroup {
  ModelUnit unit = {};                   // of several: their names joined by '+', the first one's state
  std::vector<UnitState*> members = {};  // empty for the root
  Sharding sharding = Sharding::ddp;
};

// Joins units that follow each other and have the same strategy as long as their parameters together are no
// larger than `most`, so that they travel in one message where each alone would pay a message's latency for
// little (tensor fusion: Sergeev and Del Balso, "Horovod", 2018). The root is never joined. 0 joins nothing.
std::vector<UnitGroup> join_small_units(std::vector<ModelUnit> units, const std::vector<Sharding>& shardings,
                                        Bytes most);

// Cuts the root, where its strategy is ddp, into buckets of about `most`, in the order of the model: it has
// no backward pass of its own whose end could send its gradients off, so each bucket leaves as soon as the
// last of its own is there. The bucket whose gradients come first is smaller (at most 1 MiB). 0 cuts nothing.
std::vector<UnitGroup> split_root(std::vector<UnitGroup> groups, Bytes most);

}  // namespace rondo
