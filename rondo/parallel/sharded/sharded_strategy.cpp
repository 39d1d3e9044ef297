#include "rondo/parallel/sharded/sharded_strategy.h"

#include <torch/nn/module.h>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/parallel/sharded/sharded_model.h"

namespace rondo {
namespace {

// Reads the plan from the options' text or file.
cost::StepPlan read_plan(const ShardedOptions& options) {
  const char* const source = "the plan of this job";
  if (!options.plan_text.empty())
    return cost::parse_step_plan(parse_json_strict(options.plan_text, source), source);
  if (!options.plan.empty()) return cost::read_step_plan(options.plan);
  throw UsageError(
      "strategy planned needs a file that `rondo plan` writes: set plan (--plan FILE); `rondo train` makes a "
      "plan itself for --memory-limit SIZE");
}

}  // namespace

ShardedStrategy::ShardedStrategy(std::string name, Context context, ShardedOptions options)
    : ProcessStrategy(name, std::move(context)),
      options_(std::move(options)),
      requested_shard_ranks_(options_.shard_ranks) {
  // Hooks of ddp reduce whole gradients, but here each rank needs its shard of them, so only byte codecs are
  // allowed.
  check_byte_codec(options_.codec, name);
  if (name == "planned") {
    if (!options_.ignored.empty()) {
      throw UsageError(str("strategy planned cannot ignore parameters ('", join(options_.ignored, "', '"),
                           "'): a plan counts all of the model. Take zero1, zero2, zero3, hsdp or random"));
    }
    given_ = read_plan(options_);
    plan_ = given_plan(*given_);
  } else if (name == "random") {
    plan_ = drawn_plan(options_.strategy_seed.value_or(0), /*is_told=*/this->context().rank() == 0);
  } else {
    plan_ = uniform_plan(name == "hsdp" ? Sharding::zero3 : cost::parse_strategy(name, "--strategy"));
  }
  options_.shard_ranks = shard_ranks_in(this->context());
}

void ShardedStrategy::rebuild(const Context& context) {
  options_.shard_ranks = shard_ranks_in(context);
  set_context(context);
}

int ShardedStrategy::shard_ranks_in(const Context& context) const {
  const int ranks = context.world_size();
  int shard_ranks = ranks;
  if (name() == "hsdp")
    shard_ranks = requested_shard_ranks_ == 0 ? context.local_world_size() : requested_shard_ranks_;
  if (given_ && given_->schedule && given_->ranks == ranks) shard_ranks = given_->schedule->shard_group;
  if (shard_ranks < 1 || ranks % shard_ranks != 0) {
    throw UsageError(str("--shard-ranks ", shard_ranks, " does not divide the ", ranks,
                         " ranks of this job into equal groups"));
  }
  return shard_ranks;
}

std::unique_ptr<PreparedModel> ShardedStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<ShardedModel>(std::move(module), plan_, context(), options_);
}

bool ShardedStrategy::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  if (options_.mixed_precision != MixedPrecisionPolicy{} && options_.mixed_precision != policy) {
    throw UsageError(str("strategy ", name(), " has the mixed precision policy ",
                         to_text(options_.mixed_precision), " and is given ", to_text(policy),
                         "; use one of them: a policy, or an opt level with float32 master weights"));
  }
  options_.mixed_precision = policy;
  return true;
}

std::unique_ptr<Strategy> ShardedStrategyFactory::make(const std::string& name, const Context& context,
                                                       const ShardedOptions& options) {
  return std::make_unique<ShardedStrategy>(name, context, options);
}

}  // namespace rondo
