#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/sharded/unit_plans.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// Strategies by unit. "zero1", "zero2", "zero3" and "zero3_keep" apply one sharding to all units. "hsdp"
// shards among the ranks of a host (ShardedOptions::shard_ranks) and replicates between hosts. "planned"
// reads a plan file (ShardedOptions::plan). "random" draws a sharding for each unit
// (ShardedOptions::strategy_seed).
class ShardedStrategy final : public ProcessStrategy {
 public:
  ShardedStrategy(std::string name, Context context, ShardedOptions options);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  void rebuild(const Context& context) override;
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override;

 private:
  // Returns the number of ranks among which `context`'s ranks shard a model.
  int shard_ranks_in(const Context& context) const;

  ShardedOptions options_;
  int requested_shard_ranks_;            // from the options; 0 leaves the choice to the strategy
  std::optional<cost::StepPlan> given_;  // plan of strategy "planned"
  PlanMaker plan_;
};

}  // namespace rondo
