#pragma once

#include <torch/optim/optimizer.h>

#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/unit_memory.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// What the optimizer does with the shards of units: its step, of all units or of one, its state in memory or
// in files; and clipping before it. One thread.
class ShardOptimizer {
 public:
  // What it is given outlives the object. `files`: where the optimizer's state is; null: in memory.
  ShardOptimizer(const ShardedUnits& units, const UnitOrder& order, OffloadFiles* files)
      : units_(units), order_(order), files_(files) {}

  // Throws UsageError for an optimizer whose rule looks at more of a parameter than one element, where it is
  // given shards, and for one that was not made of the parameters that this rank optimises. `model` are the
  // model's own parameters.
  void check(const torch::optim::Optimizer& optimizer, const std::vector<ModelTensor>& model);
  // Whether any unit's optimizer state is sharded.
  bool shards_state() const;
  // Of all units, whose gradients are installed.
  void step(torch::optim::Optimizer& optimizer);
  // Of one unit, whose gradients alone are installed: the optimizer passes parameters without gradients by.
  void step(torch::optim::Optimizer& optimizer, const ShardedUnit& unit);
  // As PreparedModel's, over the ranks of `shard_group`.
  double clip_gradients(double max_norm, const Group& shard_group) const;
  // Of an optimizer that looks at norms of full parameters, as NormSum says.
  void add_norms(const std::vector<at::Tensor>& parameters, at::Tensor& squares,
                 const Group& shard_group) const;

 private:
  void step_into_files(torch::optim::Optimizer& optimizer);
  // From now on torch::save() of the optimizer is an error, where it would save this rank's shards alone.
  void guard_state(torch::optim::Optimizer& optimizer);

  const ShardedUnits& units_;
  const UnitOrder& order_;
  OffloadFiles* const files_;
  const torch::optim::Optimizer* checked_ = nullptr;
  const torch::optim::Optimizer* guarded_ = nullptr;
};

}  // namespace rondo
