#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "apps/bench/commands.h"
#include "apps/bench/emulated_hosts.h"
#include "apps/bench/python.h"
#include "apps/bench/step/contest.h"
#include "apps/bench/step/contestants.h"
#include "apps/bench/step/result.h"
#include "apps/common/command_line.h"
#include "apps/common/engine_flag.h"
#include "apps/common/flag_checks.h"
#include "apps/common/matmul_setup.h"
#include "apps/common/result_flags.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/launch/scratch.h"
#include "rondo/models/model.h"
#include "rondo/parallel/ddp/hooks/registry.h"
#include "rondo/parallel/registry.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

struct StepOptions {
  std::vector<std::string> models = {"gpt-25m", "mlp"};
  std::vector<std::string> dtypes;
  int ranks = 2;
  Network network = {.rate = "1gbit"};
  std::int64_t batch_size = 0;
  std::int64_t experts = 0;  // in each block of a gpt
  std::string optimizer = "adamw";
  double learning_rate = 3e-4;
  double clip_norm = 0;
  std::string codec = "none";
  std::string mixed_precision;
  Lineup lineup;
  ContestOptions contest;
  std::vector<std::string> variants;
  bool track_memory = false;
  bool rounds_given = false;
  bool losses = false;
  std::string keep_weights;
  std::string json;
};

// Strategies beside one_device, each once, under the registry's own names. Throws UsageError listing what is
// known.
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

// What a wrong flag would otherwise say only in the middle of a run.
void check(StepOptions& options) {
  Lineup& lineup = options.lineup;
  lineup.peers = lineup.peers || !lineup.peer_strategies.empty();
  if (lineup.peers && lineup.joint_batch > 1)
    throw UsageError("--joint-batch is for rondo alone, without --peers");
  if (lineup.peers && options.experts > 0)
    throw UsageError("--experts is for rondo alone: PyTorch has no mixture of experts to stand beside it");
  if (!lineup.bucket_bytes.empty()) parse_bytes(lineup.bucket_bytes, "--bucket-size");
  lineup.schedule.values();
  parse_mixed_precision_policy(options.mixed_precision);
  if (options.codec != "none") make_comm_hook(options.codec, Group());  // throws for an unknown one
  lineup.strategies = resolve_strategies(lineup.strategies);
  for (const std::string& variant : options.variants) lineup.variants.push_back(parse_variant(variant));
  if (lineup.ablation && lineup.strategies.empty())
    throw UsageError("--ablation needs a strategy that communicates: --strategy zero3");
  Network& network = options.network;
  network.bits_per_second = bits_per_second(network.rate);
  if (network.hosts > 1 && options.ranks % network.hosts != 0) {
    throw UsageError(
        str("--ranks ", options.ranks, " does not divide among --emulate-hosts ", network.hosts));
  }
  if (!lineup.peers) return;
  if (const std::string why = why_no_pytorch(); !why.empty()) {
    std::cerr << "without PyTorch: " << why << "\n";
    lineup.peers = false;
  }
}

std::uint64_t bytes_of_gradients(const torch::nn::Module& module) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& parameter : module.parameters()) bytes += parameter.nbytes();
  return bytes;
}

Json run_case(const StepOptions& options, const std::string& model_name, const std::string& dtype) {
  const auto scratch = launch::ScratchDirectory::create();
  if (scratch.path().empty()) throw Error("cannot make a folder in $TMPDIR or /tmp");
  const fs::path folder = scratch.path();
  torch::manual_seed(1);
  nlohmann::json config = nlohmann::json::object();
  if (options.experts > 0 && model_name != "mlp") config["experts"] = options.experts;
  const Model model = make_model(model_name, config);
  StepCase training{.model = model_name,
                    .config = model.config,
                    .dtype = dtype,
                    .optimizer = options.optimizer,
                    .learning_rate = options.learning_rate,
                    .clip_norm = options.clip_norm,
                    .batch_size = options.batch_size,
                    .codec = options.codec,
                    .mixed_precision = options.mixed_precision,
                    .weights = (folder / "initial.safetensors").string(),
                    .gradient_bytes = bytes_of_gradients(*model.module),
                    .tracks_memory = options.track_memory};
  if (training.batch_size == 0) training.batch_size = training.is_gpt() ? 4 : 32;
  write_tensors(training.weights, named_tensors(*model.module));
  if (!options.keep_weights.empty()) fs::copy_file(training.weights, options.keep_weights);
  ContestOptions contest = options.contest;
  // Steps of a small model take well under a millisecond: more of them for the same time.
  if (!options.rounds_given && !training.is_gpt()) contest = {100, 20, 100, contest.patience};
  std::optional<EmulatedHosts> hosts;
  if (options.network.hosts > 1) hosts.emplace(options.network.hosts, options.network.rate);
  const FleetPlace place{.ranks = options.ranks,
                         .hosts = hosts ? &*hosts : nullptr,
                         .scratch = folder,
                         .patience = contest.patience};
  std::vector<Contestant> contestants = start_contestants(options.lineup, training, place);
  run_contest(contestants, contest);
  return step_results(training, options.network, contestants, options.losses);
}

int run_step(StepOptions options) {
  check(options);
  prepare_matmul(options.lineup.matmul);
  Json results = Json::array();
  const auto append = [&](const Json& part) {
    if (options.json != "-") print_results(part);
    results.insert(results.end(), part.begin(), part.end());
  };
  for (const std::string& model : options.models) {
    std::vector<std::string> dtypes = options.dtypes;
    if (dtypes.empty())
      dtypes = model == "gpt-25m" ? std::vector<std::string>{"float32", "bfloat16"}
                                  : std::vector<std::string>{"float32"};
    for (const std::string& dtype : dtypes) append(run_case(options, model, dtype));
  }
  if (const Json between = ratios_between_cases(results); !between.empty()) append(between);
  write_json(options.json, results);
  return 0;
}

}  // namespace

Command add_step(CLI::App& app) {
  const auto options = std::make_shared<StepOptions>();
  Lineup& lineup = options->lineup;
  CLI::App* command = app.add_subcommand(
      "step", "Training steps: one process, independent processes, rondo's strategies, PyTorch");
  command->add_option("--strategy", lineup.strategies,
                      "rondo's strategies to train with, beside one_device (default: ddp)");
  command->add_option("--model", options->models, "models to train (default: gpt-25m mlp)")
      ->check(CLI::IsMember({"gpt-25m", "gpt-tiny", "mlp"}));
  command
      ->add_option("--dtype", options->dtypes,
                   "float32, or bfloat16 for autocast (default: both for gpt-25m)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--ranks", options->ranks, "processes, one thread each, pinned to cores")
      ->check(rondo::between(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--batch-size", options->batch_size, "samples per rank (default: 4 for a gpt, 32 for mlp)")
      ->check(rondo::positive_number());
  command
      ->add_option("--experts", options->experts,
                   "so many experts in each block of a gpt, for --strategy expert")
      ->check(rondo::positive_number());
  command
      ->add_option("--joint-batch", lineup.joint_batch,
                   "every rondo process computes on so many ranks' batches: with --ranks 1, what so many "
                   "ranks see together")
      ->check(rondo::positive_number());
  command->add_option("--optimizer", options->optimizer)
      ->check(CLI::IsMember({"adamw", "sgd"}))
      ->capture_default_str();
  command->add_option("--lr", options->learning_rate)->check(rondo::positive_number())->capture_default_str();
  add_engine_flag(*command, lineup.backend);
  command->add_option("--bucket-size", lineup.bucket_bytes, "size of rondo's gradient buckets, such as 5MiB");
  command
      ->add_option("--codec", options->codec,
                   "how ddp's gradients travel (docs/codecs.md); PyTorch too, where it has that hook")
      ->capture_default_str();
  command->add_option("--mixed-precision", options->mixed_precision,
                      "policy of sharded units, as param=bfloat16,reduce=float32; FSDP2 takes the same");
  command
      ->add_option("--max-grad-norm", options->clip_norm, "clip gradients to this L2 norm; 0 is not at all")
      ->check(rondo::not_negative_number());
  command
      ->add_option("--emulate-hosts", options->network.hosts,
                   "spread the ranks over so many emulated hosts (as root)")
      ->check(rondo::between(1, 200));
  command->add_option("--rate", options->network.rate, "rate of their links, as tc writes it")
      ->capture_default_str();
  lineup.schedule.add_to(*command);
  command->add_option("--variant", options->variants,
                      "also a strategy with flags of its own, as \"zero3 --prefetch 4\" or \"planned --plan "
                      "FILE\"; may be repeated");
  command->add_flag("--ablation", lineup.ablation,
                    "each strategy with the scheduler's policies switched on in turn");
  command
      ->add_option("--matmul", lineup.matmul,
                   "rondo's matrix products: PyTorch's own (default), or the fastest found (auto)")
      ->check(CLI::IsMember({"libtorch", "auto"}))
      ->capture_default_str();
  command->add_flag("--peers", lineup.peers, "also run PyTorch's counterparts over Gloo");
  command
      ->add_option("--peer", lineup.peer_strategies,
                   "which of PyTorch's: ddp, zero1, fsdp2 (default: the counterparts of --strategy)")
      ->check(CLI::IsMember({"ddp", "zero1", "fsdp2"}));
  command
      ->add_option("--peer-setting", lineup.peer_settings,
                   "how PyTorch is written: usual, fastest (default: both for ddp, fastest for the others)")
      ->check(CLI::IsMember({"usual", "fastest"}));
  auto* rounds =
      command->add_option("--rounds", options->contest.rounds, "turns of every system (default: 6; mlp 20)")
          ->check(rondo::positive_number());
  auto* steps =
      command->add_option("--steps", options->contest.steps, "steps in a turn (default: 4; mlp 100)")
          ->check(rondo::positive_number());
  auto* warm_up =
      command
          ->add_option("--warm-up", options->contest.warm_up, "steps before measuring (default: 2; mlp 100)")
          ->check(rondo::not_negative_number());
  command->add_flag("--track-memory", options->track_memory,
                    "also peak_tensor_bytes: the most bytes that tensors and buffers had at a time");
  command->add_flag("--losses", options->losses, "the loss of every step, warm-up included, in the JSON");
  command->add_option("--keep-weights", options->keep_weights,
                      "also write the initial weights to FILE (safetensors)");
  add_json_flag(*command, options->json);
  command->footer(
      "Systems take turns in short bursts; throughput is the sum over ranks at each rank's median step.\n\n"
      "Examples:\n"
      "  rondo bench step --peers --json step.json\n"
      "  rondo bench step --model gpt-25m --dtype float32 --rounds 10\n"
      "  rondo bench step --model gpt-25m --strategy ddp zero1 zero2 zero3 --peers\n"
      "  rondo bench step --model gpt-tiny --dtype float32 --strategy expert --experts 4\n"
      "  rondo bench step --model gpt-25m --variant \"zero3 --prefetch 0\" \"zero3 --prefetch 4\"\n"
      "  rondo bench step --model gpt-25m --strategy ddp --emulate-hosts 2 --rate 1gbit --peers\n"
      "  rondo bench step --model gpt-tiny --peers --losses --rounds 1 --steps 100 --warm-up 0 --json -");
  return {command, [=] {
            options->rounds_given = *rounds || *steps || *warm_up;
            return run_step(*options);
          }};
}

}  // namespace rondo::bench
