#include "rondo/parallel/sharded/sharded_options.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void read_option(const std::string& text, const std::string& what, MixedPrecisionPolicy& value) {
  try {
    value = parse_mixed_precision_policy(text);
  } catch (const UsageError& error) {
    throw UsageError(str(what, ": ", error.what()));
  }
}
std::string option_text(const MixedPrecisionPolicy& value) { return to_text(value); }

namespace {

using Options = ShardedOptions;
using Table = OptionsOf<ShardedOptions>;

// Converts to a number of ranks; see ShardedOptions::reshard_ranks.
int parse_reshard_after_forward(const std::string& text, const std::string& what) {
  if (text == "true") return 0;
  if (text == "false") return 1;
  const bool digits =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  const int ranks = digits ? std::stoi(text) : 0;
  if (ranks < 1) throw UsageError(str(what, " ", text, " is neither true, false nor a number of ranks"));
  return ranks;
}

std::string reshard_text(int ranks) {
  return ranks == 0 ? "true" : ranks == 1 ? "false" : std::to_string(ranks);
}

std::vector<std::string> offloaded(const OffloadOptions& options) {
  std::vector<std::string> what;
  if (options.parameters) what.emplace_back("parameters");
  if (options.optimizer) what.emplace_back("optimizer");
  return what;
}

void add_offload(Table& table) {
  table.add({.name = "offload",
             .help = "Directory of memory-mapped files that replace memory; use a fast local disk",
             .type = "DIR",
             .set = [](void* options, const std::string& text,
                       const std::string&) { Table::of(options).offload.directory = text; },
             .text = [](const void* options) { return Table::of(options).offload.directory; }});
  table
      .add({.name = "offload-what",
            .help = "State to offload: parameters (the rank's shards), optimizer (its state)",
            .kind = OptionKind::list,
            .allowed = one_of({"parameters", "optimizer"}),
            .set =
                [](void* options, const std::string& text, const std::string&) {
                  const std::vector<std::string> names = split(text, ',');
                  const auto has = [&](const char* name) {
                    return std::find(names.begin(), names.end(), name) != names.end();
                  };
                  OffloadOptions& offload = Table::of(options).offload;
                  offload.parameters = has("parameters");
                  offload.optimizer = has("optimizer");
                },
            .text = [](const void* options) { return join(offloaded(Table::of(options).offload), ","); }})
      .needs = OptionNeed{"offload"};
}

// Returns the options that all strategies here share.
Table sharded_table() {
  Table table;
  table.begin_group("Sharded units");
  table.add("mixed-precision", &Options::mixed_precision,
            "Dtypes of units, such as param=bfloat16,reduce=float32 (output=, cast_forward_inputs=, "
            "keep_batchnorm_fp32=); weights and optimizer stay float32");
  table.add("reduce-every-pass", &Options::reduce_every_pass,
            "With --gradient-accumulation-steps: reduce gradients to shards in every pass");
  add_offload(table);
  table.begin_group("Parameters without a gradient");
  table.add("find-unused-parameters", &Options::find_unused_parameters, kFindUnusedHelp);
  table.begin_group("Sharded units");
  table.add("codec", &Options::codec, kCodecHelp, {.type = kCodecOption});
  table.include(communication_options());
  table.begin_group("Communication between hosts");
  table.add("gradients-in-flight", &Options::gradients_in_flight,
            "Units whose gradients are in flight; 0: no limit", zero_or_more());
  table.begin_group("Sharded units");
  table.without_flags({"reduce-every-pass", "offload-what", "gradients-in-flight"});
  return table;
}

void add_reshard(Table& table) {
  table.add({.name = "reshard-after-forward",
             .help = "true, false, or the number of ranks that keep parameters sharded until backward",
             .type = "true|false|N",
             .set =
                 [](void* options, const std::string& text, const std::string& what) {
                   Table::of(options).reshard_ranks = parse_reshard_after_forward(text, what);
                 },
             .text = [](const void* options) { return reshard_text(Table::of(options).reshard_ranks); }});
}

}  // namespace

std::vector<Declaration> ShardedStrategyFactory::declarations() {
  const Table table = sharded_table();
  Table zero3 = table;
  add_reshard(zero3);
  Table hsdp = zero3, planned = zero3, random = zero3;
  hsdp.add("shard-ranks", &Options::shard_ranks, "Ranks per shard group; 0: the ranks of a host",
           zero_or_more());
  planned.add("plan", &Options::plan,
              "Plan file of `rondo plan`; default: measure, and plan for --memory-limit", path_to_read());
  random.add("strategy-seed", &Options::strategy_seed,
             "Seed of the strategy drawn for each unit; default --seed", zero_or_more());
  random.without_flags({"strategy-seed"});
  return {
      {.name = "zero1",
       .summary = "each rank keeps the optimizer's state for its shard of the parameters only",
       .options = table},
      {.name = "zero2",
       .summary = "zero1, and each rank keeps the gradients of its shard only",
       .options = table},
      {.name = "zero3",
       .summary = "parameters too are kept as shards, and gathered unit by unit when they are used",
       .options = zero3,
       .aliases = {"fsdp"}},
      {.name = "zero3_keep",
       .summary = "zero3, but parameters gathered for forward stay until backward",
       .options = table},
      {.name = "hsdp",
       .summary = "zero3 among the ranks of a host (or --shard-ranks), replicated between hosts",
       .options = hsdp},
      {.name = "planned",
       .summary = "a strategy for each unit, from the file --plan",
       .options = planned,
       .is_planned = true},
      {.name = "random",
       .summary = "a strategy for each unit, drawn from strategy-seed or --seed",
       .options = random},
  };
}

}  // namespace rondo
