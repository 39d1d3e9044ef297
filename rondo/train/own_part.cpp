#include "rondo/train/own_part.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "rondo/backend/collectives.h"
#include "rondo/strategy/shard_directory.h"

namespace rondo {

void OwnPart::copy(std::vector<Shard*> shards) {
  copies_.resize(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const at::Tensor& from = shards[i]->local;
    at::Tensor& to = copies_[i];
    if (!to.defined() || to.sizes() != from.sizes() || to.scalar_type() != from.scalar_type())
      to = at::empty(from.sizes(), from.options().device(c10::kCPU));
    to.copy_(from.detach());
    shards[i]->local = to;
  }
}

const std::vector<std::size_t>& OwnPart::to_write(const std::vector<Shard>& held, const Group& world) {
  const auto is_known = [](const Shard& shard, const Shard& known) {
    return shard.name == known.name && shard.global_sizes == known.global_sizes && same_address(shard, known);
  };
  const std::pair place{world.rank(), world.size()};
  at::Tensor changes = at::zeros({1}, at::TensorOptions(at::kInt).device(world.traits().control_device()));
  if (place != place_ || !std::equal(held.begin(), held.end(), known_.begin(), known_.end(), is_known))
    changes.fill_(1);
  all_reduce(changes, world, ReduceOp::MAX);
  if (changes.item<int>() == 0) return to_write_;
  to_write_ = ShardDirectory(held, world).to_write();
  place_ = place;
  known_ = held;
  for (Shard& shard : known_) shard.local.reset();
  return to_write_;
}

CheckpointPart OwnPart::take(const Context& context, ShardedState state, const NamedTensors& model,
                             bool copies) {
  CheckpointPart part{.number = context.rank(), .count = context.world_size()};
  if (context.rank() == 0) {
    part.shared = shared_names(
        model, [&](const std::string& name) { return find_shard(state.model, name) != nullptr; });
  }
  std::vector<Shard> held = std::move(state.model);
  const std::size_t of_model = held.size();
  std::move(state.optimizer.begin(), state.optimizer.end(), std::back_inserter(held));
  for (const std::size_t number : to_write(held, context.world()))
    (number < of_model ? part.model : part.optimizer).push_back(held[number]);
  if (!copies) return part;
  const at::NoGradGuard no_gradient;
  std::vector<Shard*> shards;
  for (std::vector<Shard>* list : {&part.model, &part.optimizer}) {
    for (Shard& shard : *list) shards.push_back(&shard);
  }
  copy(std::move(shards));
  return part;
}

}  // namespace rondo
