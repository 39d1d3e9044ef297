#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/sharded/unit_plans.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// Strategies by unit: "zero1", "zero2", "zero3", "zero3_keep" give every unit the same, "hsdp" shards among
// the ranks of a host (ShardedOptions::shard_ranks) and replicates between them, "planned" takes a plan file
// (ShardedOptions::plan), "random" draws one for each unit (ShardedOptions::strategy_seed).
class ShardedStrategy final : public ProcessStrategy {
 public:
  ShardedStrategy(std::string name, Context context, ShardedOptions options);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  void rebuild(const Context& context) override;
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override;

 private:
  // Of shards among the ranks of `context`.
  int shard_ranks_in(const Context& context) const;

  ShardedOptions options_;
  int asked_shard_ranks_;                // by the options; 0 leaves it to the strategy
  std::optional<cost::StepPlan> given_;  // planned
  PlanMaker plan_;
};

}  // namespace rondo
