#include "rondo/parallel/sharded/sharded_strategy.h"

#include <torch/nn/module.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/json_strict.h"
#include "rondo/parallel/sharded/sharded_model.h"

namespace rondo {
namespace {

ShardingPlan plan_for(const std::string& strategy, const StrategyOptions& options) {
  if (strategy == "random") return ShardingPlan::random(options.strategy_seed);
  if (strategy == "hsdp") return ShardingPlan(Sharding::zero3);
  if (strategy != "planned") return ShardingPlan(cost::parse_strategy(strategy, "--strategy"));
  if (!options.plan_text.empty()) {
    const char* const source = "the plan of this job";
    return {cost::parse_plan_file(parse_json_strict(options.plan_text, source), source), source};
  }
  if (options.plan.empty()) {
    throw UsageError(
        "strategy planned needs --plan FILE, which `rondo plan` writes, or (`rondo train`) --memory-limit "
        "SIZE "
        "to make a plan for");
  }
  return {cost::read_plan_file(options.plan), str("plan ", options.plan)};
}

}  // namespace

ShardedStrategy::ShardedStrategy(std::string name, Context context, StrategyOptions options)
    : ProcessStrategy(name, std::move(context)),
      options_(std::move(options)),
      plan_(plan_for(name, options_)) {
  const int ranks = this->context().world_size();
  if (name == "hsdp" && options_.shard_ranks == 0) options_.shard_ranks = this->context().local_world_size();
  if (name != "hsdp") options_.shard_ranks = ranks;
  if (plan_.file() != nullptr && plan_.file()->schedule && plan_.file()->ranks == ranks)
    options_.shard_ranks = plan_.file()->schedule->shard_group;
  if (options_.shard_ranks < 1 || ranks % options_.shard_ranks != 0) {
    throw UsageError(str("--shard-ranks ", options_.shard_ranks, " does not divide the ", ranks,
                         " ranks of this job into equal groups"));
  }
}

std::unique_ptr<PreparedModel> ShardedStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<ShardedModel>(std::move(module), plan_, context(), options_);
}

bool ShardedStrategy::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  if (options_.mixed_precision != MixedPrecisionPolicy{} && options_.mixed_precision != policy) {
    throw UsageError(str("strategy ", name(), " has the mixed precision policy ",
                         to_text(options_.mixed_precision), " and is told ", to_text(policy),
                         "; say it in one way: a policy, or an opt level with float32 masters"));
  }
  options_.mixed_precision = policy;
  return true;
}

void add_sharded_strategies(StrategyRegistry& registry) {
  const auto add = [&](const std::string& name, std::string summary) {
    registry.add(name, std::move(summary), [name](const Context& context, const StrategyOptions& options) {
      return std::make_unique<ShardedStrategy>(name, context, options);
    });
  };
  add("zero1", "each rank keeps the optimizer's state for its shard of the parameters only");
  add("zero2", "zero1, and gradients are kept for the shard only");
  add("zero3", "parameters too are kept as shards, and gathered unit by unit when they are used");
  add("zero3_keep", "zero3, but what was gathered for forward stays until backward");
  add("hsdp", "zero3 among the ranks of a host, copies between hosts (or --shard-ranks)");
  add("planned", "a strategy for each unit, from the file --plan");
  add("random", "a strategy for each unit, drawn from --strategy-seed or --seed");
  registry.add_alias("fsdp", "zero3");
}

}  // namespace rondo
