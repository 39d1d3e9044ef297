#pragma once

#include <utility>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/strategy/sharded_state.h"

namespace rondo {

// A selector of the part of a training's state that this rank writes; all ranks together write each element
// once. It caches the ranks' shards and reuses memory for copies.
class OwnPart {
 public:
  // `model` has the names for the files; several may refer to one tensor. With `copies` the elements are
  // copied and do not change until the next call. Collective.
  CheckpointPart take(const Context& context, ShardedState state, const NamedTensors& model, bool copies);

 private:
  void copy(std::vector<Shard*> shards);
  // Returns the indices in `held` of the shards that this rank writes. Ranks exchange their lists only if one
  // of them has changed since the last save. Collective.
  const std::vector<std::size_t>& to_write(const std::vector<Shard>& held, const Group& world);

  std::vector<at::Tensor> copies_;      // copies of elements, by index of the shard
  std::vector<Shard> known_;            // argument of the last to_write(): addresses
  std::pair<int, int> place_ = {0, 0};  // rank and world size at the last to_write()
  std::vector<std::size_t> to_write_;   // result of the last to_write()
};

}  // namespace rondo
