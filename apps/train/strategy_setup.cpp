#include "apps/train/strategy_setup.h"

#include <algorithm>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/ddp/hooks/registry.h"

namespace rondo {
namespace {

// As a number of ranks, see StrategyOptions::reshard_ranks.
int parse_reshard_after_forward(const std::string& text) {
  if (text == "true") return 0;
  if (text == "false") return 1;
  const bool digits = !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == text.npos;
  const int ranks = digits ? std::stoi(text) : 0;
  if (ranks < 1)
    throw UsageError(str("--reshard-after-forward ", text, " is neither true, false nor a number of ranks"));
  return ranks;
}

OffloadOptions offload_options(const TrainFlags& flags) {
  const auto has = [&](const char* what) {
    return std::find(flags.offload_what.begin(), flags.offload_what.end(), what) != flags.offload_what.end();
  };
  return {.directory = flags.offload, .parameters = has("parameters"), .optimizer = has("optimizer")};
}

}  // namespace

StrategyOptions strategy_options(const TrainFlags& flags, const Group& world) {
  StrategyOptions options;
  options.bucket_bytes = parse_bytes(flags.bucket_size, "--bucket-size");
  options.codec = flags.codec;
  // Known or not, also where nothing has to travel.
  if (flags.codec != "none") make_comm_hook(flags.codec, world);
  options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
  options.check_parameters_every = flags.check_parameters_every;
  options.plan = flags.plan;
  options.strategy_seed = flags.strategy_seed.value_or(flags.seed);
  options.shard_ranks = flags.shard_ranks;
  options.reduce_every_pass = flags.reduce_every_pass;
  options.schedule = flags.comm_schedule;
  options.schedule_seed = flags.comm_seed;
  options.block_bytes = parse_bytes(flags.block_size, "--block-size");
  options.credit_bytes = parse_bytes(flags.credit, "--credit");
  options.fuse_bytes = parse_bytes(flags.fuse_bytes, "--fuse-bytes");
  options.prefetch = flags.prefetch;
  options.gradients_in_flight = flags.gradients_in_flight;
  options.mixed_precision = parse_mixed_precision_policy(flags.mixed_precision);
  options.reshard_ranks = parse_reshard_after_forward(flags.reshard_after_forward);
  options.offload = offload_options(flags);
  return options;
}

}  // namespace rondo
