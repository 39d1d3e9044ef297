#pragma once

#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/nn/partition.h"
#include "rondo/parallel/sharded/sharding.h"

namespace rondo {

// Units that are gathered, reduced and freed together.
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

}  // namespace rondo
