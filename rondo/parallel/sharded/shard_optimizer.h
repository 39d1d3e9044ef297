#pragma once

#include <torch/optim/optimizer.h>

#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/unit_memory.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// Runs the optimizer on the shards of units: steps of all units or of one, with its state in memory or in
// files, and clipping before the step. Not thread-safe.
class ShardOptimizer {
 public:
  // The arguments must outlive the object. `files`: storage of the optimizer's state; null: in memory.
  ShardOptimizer(const ShardedUnits& units, const UnitOrder& order, OffloadFiles* files)
      : units_(units), order_(order), files_(files) {}

  // Throws UsageError for an optimizer that is given shards if its update is neither elementwise nor that of
  // LAMB or LARS. Also throws for one that was not constructed with the parameters that this rank optimizes.
  // `model`: the model's own parameters.
  void check(const torch::optim::Optimizer& optimizer, const std::vector<ModelTensor>& model);
  // Returns true if the optimizer state of any unit is sharded.
  bool shards_state() const;
  // Runs the step of all units. Their gradients must be installed.
  void step(torch::optim::Optimizer& optimizer);
  // Runs the step of one unit. Only its gradients may be installed: the optimizer skips parameters without
  // gradients.
  void step(torch::optim::Optimizer& optimizer, const ShardedUnit& unit);
  // Implements PreparedModel::clip_gradients over the ranks of `shard_group`.
  double clip_gradients(double max_norm, const Group& shard_group) const;
  // Adds up norms of full parameters for an optimizer that uses them; see NormSum.
  void add_norms(const std::vector<at::Tensor>& parameters, at::Tensor& squares,
                 const Group& shard_group) const;

 private:
  void step_into_files(torch::optim::Optimizer& optimizer);
  // Makes torch::save() of the optimizer an error, because it would save this rank's shards alone.
  void guard_state(torch::optim::Optimizer& optimizer);

  const ShardedUnits& units_;
  const UnitOrder& order_;
  OffloadFiles* const files_;
  const torch::optim::Optimizer* checked_ = nullptr;
  const torch::optim::Optimizer* guarded_ = nullptr;
};

}  // namespace rondo
