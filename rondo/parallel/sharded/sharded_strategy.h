#pragma once

#include <memory>
#include <string>

#include "rondo/parallel/sharded/sharding_plan.h"
#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/registry.h"

namespace rondo {

// Strategies by unit: "zero1", "zero2", "zero3", "zero3_keep" give every unit the same, "hsdp" shards among
// the ranks of a host (StrategyOptions::shard_ranks) and replicates between them, "planned" takes a plan file
// (StrategyOptions::plan), "random" draws one for each unit (StrategyOptions::strategy_seed).
class ShardedStrategy final : public ProcessStrategy {
 public:
  ShardedStrategy(std::string name, Context context, StrategyOptions options);
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override;

 private:
  StrategyOptions options_;
  ShardingPlan plan_;
};

// Adds them all.
void add_sharded_strategies(StrategyRegistry& registry);

}  // namespace rondo
