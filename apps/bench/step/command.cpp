// `rondo bench step`: training steps of rondo compared with PyTorch's, in alternating short bursts.
#include <torch/types.h>

#include <filesystem>

#include "apps/bench/commands.h"
#include "apps/bench/harness/rank.h"
#include "apps/bench/step/step.h"
#include "apps/common/job_flags.h"
#include "apps/common/matmul_setup.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/schedule/communication_options.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

struct StepOptions {
  std::vector<std::string> models = {"gpt-25m", "mlp"};
  std::vector<std::string> dtypes;
  int ranks = 2;
  Network network = {.rate = "1gbit"};
  std::int64_t batch_size = 0;
  std::int64_t experts = 0;  // per block of a gpt
  std::string optimizer = "adamw";
  double learning_rate = 3e-4;
  double clip_norm = 0;
  std::string codec = "none";
  std::string mixed_precision;
  Lineup lineup;
  Turns turns;
  std::function<bool()> turns_given;
  std::vector<std::string> variants;
  bool track_memory = false;
  bool losses = false;
  std::string keep_weights;
};

// Returns the strategies besides one_device, each once, under the registry's names. Throws UsageError that
// lists the known ones.
std::vector<std::string> resolve_strategies(const std::vector<std::string>& given) {
  const StrategyRegistry registry = all_strategies();
  std::vector<std::string> names;
  for (const std::string& name : given) {
    const std::string& resolved = registry.resolve(name);
    if (resolved != "one_device" && std::find(names.begin(), names.end(), resolved) == names.end())
      names.push_back(resolved);
  }
  return names;
}

// Rejects invalid flags before the run.
void check(StepOptions& options) {
  Lineup& lineup = options.lineup;
  lineup.peers = lineup.peers || !lineup.peer_strategies.empty();
  if (lineup.peers && lineup.joint_batch > 1)
    throw UsageError("--joint-batch and --peers exclude each other");
  if (lineup.peers && options.experts > 0)
    throw UsageError(
        "--experts and --peers exclude each other: PyTorch has no mixture of experts to compare with");
  if (!lineup.bucket_bytes.empty()) parse_bytes(lineup.bucket_bytes, "--bucket-size");
  lineup.schedule.values();
  parse_mixed_precision_policy(options.mixed_precision);
  if (options.codec != "none") make_comm_hook(options.codec, Group());  // throws for an unknown one
  lineup.strategies = resolve_strategies(lineup.strategies);
  for (const std::string& variant : options.variants) lineup.variants.push_back(parse_variant(variant));
  if (lineup.ablation && lineup.strategies.empty())
    throw UsageError("--ablation needs a strategy that communicates, such as --strategy zero3");
  check_network(options.network, options.ranks);
  lineup.peers = peers_take_part(lineup.peers);
}

Json run_case(const StepOptions& options, const std::string& model_name, const std::string& dtype) {
  const auto scratch = make_scratch();
  const fs::path folder = scratch.path();
  nlohmann::json config = nlohmann::json::object();
  if (options.experts > 0 && model_name != "mlp") config["experts"] = options.experts;
  StepCase training{.model = model_name,
                    .dtype = dtype,
                    .optimizer = options.optimizer,
                    .learning_rate = options.learning_rate,
                    .clip_norm = options.clip_norm,
                    .batch_size = options.batch_size,
                    .codec = options.codec,
                    .mixed_precision = options.mixed_precision,
                    .weights = folder / "initial.safetensors",
                    .tracks_memory = options.track_memory};
  write_initial_weights(training, config);
  if (training.batch_size == 0) training.batch_size = training.is_gpt() ? 4 : 32;
  if (!options.keep_weights.empty()) fs::copy_file(training.weights, options.keep_weights);
  Turns turns = options.turns;
  // Steps of a small model take much less than a millisecond: more of them in the same time.
  if (!options.turns_given() && !training.is_gpt()) turns = {.warm_up = 100, .rounds = 20, .steps = 100};
  std::optional<EmulatedHosts> hosts;
  if (options.network.hosts > 1) hosts.emplace(options.network.hosts, options.network.rate);
  std::vector<Contestant> contestants =
      start_contestants(options.lineup, training,
                        {.ranks = options.ranks, .hosts = hosts ? &*hosts : nullptr, .scratch = folder});
  {
    StageProgress stage;
    stage.begin(str("measuring ", model_name, " in ", dtype));
    run_contest(contestants, turns);
  }
  return step_results(training, options.network, contestants, options.losses);
}

Json run_step(StepOptions& options, bool prints) {
  check(options);
  prepare_matmul(options.lineup.matmul);
  Json results = Json::array();
  const auto append = [&](const Json& part) {
    if (prints) print_step_results(part);
    results.insert(results.end(), part.begin(), part.end());
  };
  for (const std::string& model : options.models) {
    std::vector<std::string> dtypes = options.dtypes;
    if (dtypes.empty()) dtypes = {"float32"};
    if (options.dtypes.empty() && model == "gpt-25m") dtypes.emplace_back("bfloat16");
    for (const std::string& dtype : dtypes) append(run_case(options, model, dtype));
  }
  if (const Json between = ratios_between_cases(results); !between.empty()) append(between);
  return results;
}

void add_step_flags(CLI::App& app, StepOptions& options) {
  Lineup& lineup = options.lineup;
  app.add_option("--strategy", lineup.strategies, "rondo's strategies to measure, in addition to one_device");
  app.add_option("--model", options.models, "models to train")
      ->check(CLI::IsMember({"gpt-25m", "gpt-tiny", "mlp"}));
  app.add_option("--dtype", options.dtypes,
                 "float32, or bfloat16 for autocast (default: both for gpt-25m, else float32)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--ranks", options.ranks, "processes, one thread each, pinned to cores")
      ->check(between(1, 1024));
  app.add_option("--batch-size", options.batch_size, "samples per rank (default: 4 for a gpt, 32 for mlp)")
      ->check(positive_number())
      ->default_str("");
  app.add_option("--experts", options.experts, "number of experts per block of a gpt, for --strategy expert")
      ->check(positive_number())
      ->default_str("");
  app.add_option("--joint-batch", lineup.joint_batch,
                 "number of per-rank batches that each rondo process computes on together")
      ->check(positive_number());
  app.add_option("--optimizer", options.optimizer)->check(CLI::IsMember({"adamw", "sgd"}));
  app.add_option("--lr", options.learning_rate)->check(positive_number());
  add_engine_flag(app, lineup.backend);
  app.add_option("--bucket-size", lineup.bucket_bytes, "size of rondo's gradient buckets, such as 5MiB");
  app.add_option(
      "--codec", options.codec,
      "codec of ddp's gradients (docs/codecs.md); PyTorch uses the same one, where it has that hook");
  app.add_option(
      "--mixed-precision", options.mixed_precision,
      "mixed-precision policy of sharded units, such as param=bfloat16,reduce=float32; also for FSDP2");
  app.add_option("--max-grad-norm", options.clip_norm, "clip gradients to this L2 norm; 0: no clipping")
      ->check(not_negative_number());
  add_network_flags(app, options.network);
  lineup.schedule.add_to(app);
  app.add_option(
      "--variant", options.variants,
      "also measure a strategy with its own flags, such as \"zero3 --prefetch 4\"; may be repeated");
  app.add_flag("--ablation", lineup.ablation,
               "measure each strategy with the scheduler's policies enabled one after another");
  app.add_option("--matmul", lineup.matmul,
                 "kernels of rondo's matrix products: libtorch (PyTorch's default) or auto (the fastest)")
      ->check(CLI::IsMember({"libtorch", "auto"}));
  app.add_flag("--peers", lineup.peers, "also run PyTorch's counterparts over Gloo");
  app.add_option("--peer", lineup.peer_strategies,
                 "PyTorch's strategies to run: ddp, zero1, fsdp2 (default: the counterparts of --strategy)")
      ->check(CLI::IsMember({"ddp", "zero1", "fsdp2"}));
  app.add_option("--peer-setting", lineup.peer_settings,
                 "settings of PyTorch: usual, fastest (default: both for ddp, fastest for the others)")
      ->check(CLI::IsMember({"usual", "fastest"}));
  options.turns_given = add_turns_flags(app, options.turns, " (of an mlp 20, 100 and 100)");
  app.add_flag("--track-memory", options.track_memory,
               "also report peak_tensor_bytes, the peak memory of tensors and buffers");
  app.add_flag("--losses", options.losses, "the loss of every step, warm-up included, in the JSON");
  app.add_option("--keep-weights", options.keep_weights,
                 "also write the initial weights to FILE (safetensors)");
}

}  // namespace

Command add_step(CLI::App& parent) {
  return add_benchmark<StepOptions>(
      parent,
      {"step", "Training steps: one process, independent processes, rondo's strategies, PyTorch",
       "Systems take turns in short bursts; throughput is the sum over ranks at each rank's median step.\n\n"
       "Examples:\n"
       "  rondo bench step --peers --json step.json\n"
       "  rondo bench step --model gpt-25m --dtype float32 --rounds 10\n"
       "  rondo bench step --model gpt-25m --strategy ddp zero1 zero2 zero3 --peers\n"
       "  rondo bench step --model gpt-tiny --dtype float32 --strategy expert --experts 4\n"
       "  rondo bench step --model gpt-25m --variant \"zero3 --prefetch 0\" \"zero3 --prefetch 4\"\n"
       "  rondo bench step --model gpt-25m --strategy ddp --emulate-hosts 2 --rate 1gbit --peers\n"
       "  rondo bench step --model gpt-tiny --peers --losses --rounds 1 --steps 100 --warm-up 0 --json -"},
      add_step_flags, run_step);
}

}  // namespace rondo::bench
