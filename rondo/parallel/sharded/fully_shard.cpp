#include "rondo/parallel/sharded/fully_shard.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/sharded/sharded_strategy.h"
#include "rondo/strategy/state_dict.h"

namespace rondo {
namespace {

// Returns the value of ShardedOptions::reshard_ranks.
int reshard_ranks(const std::variant<bool, int>& reshard_after_forward) {
  if (const bool* const frees = std::get_if<bool>(&reshard_after_forward)) return *frees ? 0 : 1;
  const int ranks = std::get<int>(reshard_after_forward);
  if (ranks < 1) {
    throw UsageError(str("fully_shard: reshard_after_forward = ", ranks,
                         " is no number of ranks; give true, false, or one or more"));
  }
  return ranks;
}

void check(const torch::nn::Module* module, const FullyShardOptions& options) {
  if (module == nullptr) throw UsageError("fully_shard: the module is null");
  if (module->parameters().empty()) {
    throw UsageError(str("fully_shard: module ", module->name(),
                         " has no parameters, so there is nothing to shard; register its layers by "
                         "register_module() and its tensors by register_parameter() before"));
  }
  const int stage = options.zero_stage;
  if (stage < 1 || stage > 3)
    throw UsageError(str("fully_shard: zero_stage = ", stage, "; allowed are 1, 2 and 3"));
  if (stage == 3) return;
  if (options.shard_ranks != 0)
    throw UsageError(str("fully_shard: shard_ranks needs zero_stage = 3, and it is ", stage));
  if (options.reshard_after_forward != std::variant<bool, int>(true)) {
    throw UsageError(
        str("fully_shard: reshard_after_forward needs zero_stage = 3, which shards parameters; "
            "it is ",
            stage));
  }
}

}  // namespace

FullyShardedModel fully_shard(std::shared_ptr<torch::nn::Module> module, const Context& context,
                              const FullyShardOptions& options) {
  check(module.get(), options);
  ShardedOptions sharded;
  sharded.shard_ranks = options.shard_ranks;
  sharded.reshard_ranks = reshard_ranks(options.reshard_after_forward);
  sharded.mixed_precision = options.mixed_precision;
  sharded.offload = options.offload;
  sharded.codec = options.codec;
  sharded.find_unused_parameters = options.find_unused_parameters;
  sharded.broadcast_buffers = options.broadcast_buffers;
  sharded.ignored = options.ignored;
  const std::string name = options.shard_ranks != 0 ? "hsdp" : str("zero", options.zero_stage);
  return FullyShardedModel(ShardedStrategy(name, context, sharded).prepare(std::move(module)));
}

std::vector<ModelTensor> FullyShardedModel::state_dict() { return full_state_dict(*prepared_); }

void FullyShardedModel::load_state_dict(const std::vector<ModelTensor>& state) {
  load_full_state_dict(*prepared_, state);
}

OptimizerSnapshot FullyShardedModel::optimizer_state_dict(torch::optim::Optimizer& optimizer) {
  return full_optimizer_state_dict(*prepared_, optimizer);
}

void FullyShardedModel::load_optimizer_state_dict(torch::optim::Optimizer& optimizer,
                                                  const OptimizerSnapshot& state) {
  load_full_optimizer_state_dict(*prepared_, optimizer, state);
}

}  // namespace rondo
