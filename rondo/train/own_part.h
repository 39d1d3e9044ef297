#pragma once

#include <utility>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/sharded_state.h"

namespace rondo {

// What this rank writes of a training's state, so that all ranks together write each element once. Remembers
// what ranks hold and keeps the memory of copies from one time to the next.
class OwnPart {
 public:
  // `model` has the names that the files get, of which several may be of one tensor. With `copies` the
  // elements are copied, and stay as they are until the next call. Collective.
  CheckpointPart take(const Context& context, ShardedState state, const NamedTensors& model, bool copies);

 private:
  void copy(std::vector<Shard*> shards);
  // Numbers in `held` of the shards that this rank writes. Ranks tell each other what they hold only when
  // one of them holds others than at the save before. Collective.
  const std::vector<std::size_t>& to_write(const std::vector<Shard>& held, const Group& world);

  std::vector<at::Tensor> copies_;      // of the state, by number of the shard
  std::vector<Shard> known_;            // what to_write() was asked about last: addresses
  std::pair<int, int> place_ = {0, 0};  // and this rank's place then: rank and size of the world
  std::vector<std::size_t> to_write_;   // and what it said
};

}  // namespace rondo
