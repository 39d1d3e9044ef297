#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/bench/commands.h"
#include "apps/bench/python.h"
#include "apps/bench/step/contest.h"
#include "apps/bench/step/result.h"
#include "apps/common/command_line.h"
#include "apps/common/matmul_setup.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/launch/scratch.h"
#include "rondo/models/model.h"
#include "rondo/parallel/ddp/hooks/registry.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

struct StepOptions {
  std::vector<std::string> models = {"gpt-25m", "mlp"};
  std::vector<std::string> dtypes;
  int ranks = 2;
  std::int64_t batch_size = 0;
  int joint_batch = 1;
  std::string optimizer = "adamw";
  double learning_rate = 3e-4;
  std::string backend = "auto";
  std::string bucket_bytes;
  std::string codec = "none";
  std::string matmul = "default";
  bool peers = false;
  ContestOptions contest;
  bool rounds_given = false;
  bool losses = false;
  std::string keep_weights;
  std::string json;
};

// Starts the processes of one system and waits until they are ready.
std::shared_ptr<Fleet> start_fleet(const std::string& name, std::vector<std::string> command,
                                   const StepCase& training, int ranks, const fs::path& scratch,
                                   Duration patience) {
  const auto add = [&](const char* flag, const std::string& value) {
    command.emplace_back(flag);
    command.push_back(value);
  };
  add("--config", training.config.dump());
  add("--weights", training.weights);
  add("--dtype", training.dtype);
  add("--batch-size", str(training.batch_size));
  add("--learning-rate", str(training.learning_rate));
  add("--optimizer", training.optimizer);
  add("--codec", training.codec);
  add("--world-size", str(ranks));
  std::string file = name;
  std::replace_if(
      file.begin(), file.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '-');
  add("--rendezvous", "file://" + (scratch / file).string());
  command.emplace_back("--rank");
  const std::map<std::string, std::string> environment = {{"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}};
  const auto processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  auto fleet = std::make_shared<Fleet>();
  for (int rank = 0; rank < ranks; ++rank) {
    command.push_back(str(rank));
    fleet->workers.push_back(std::make_unique<ChildProcess>(str("process ", rank, " of '", name, "'"),
                                                            command, environment, rank % processors));
    command.pop_back();
  }
  for (const auto& worker : fleet->workers) worker->read_line(Deadline::after(patience));
  return fleet;
}

std::vector<Contestant> start_contestants(const StepOptions& options, const StepCase& training,
                                          const fs::path& scratch) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const auto ranks = static_cast<std::size_t>(options.ranks);
  const auto start = [&](const std::string& name, const std::vector<std::string>& command) {
    return start_fleet(name, command, training, options.ranks, scratch, options.contest.patience);
  };
  const auto rondo = [&](const std::string& strategy) {
    const std::string backend = strategy == "ddp" ? options.backend : "native";
    return start("rondo " + strategy, {self, "step-worker", "--strategy", strategy, "--model", training.model,
                                       "--backend", backend, "--bucket-bytes", options.bucket_bytes,
                                       "--joint-batch", str(options.joint_batch)});
  };
  const auto pytorch = [&](const std::string& setting) {
    return start("pytorch ddp " + setting,
                 {python(), peer_script("step.py"), "--strategy", "ddp", "--setting", setting, "--kind",
                  training.is_gpt() ? "gpt" : "mlp"});
  };
  std::vector<Contestant> contestants;
  const std::shared_ptr<Fleet> alone = rondo("one_device");
  contestants.push_back({"rondo", "one_device", "", alone, 1});
  contestants.push_back({"rondo", "one_device", "independent", alone, ranks});
  contestants.push_back({"rondo", "ddp", "", rondo("ddp"), ranks});
  if (options.peers) {
    contestants.push_back({"pytorch", "ddp", "as usually written", pytorch("usual"), ranks});
    contestants.push_back({"pytorch", "ddp", "fastest setting", pytorch("fastest"), ranks});
  }
  return contestants;
}

Json run_case(const StepOptions& options, const std::string& model_name, const std::string& dtype) {
  const auto scratch = launch::ScratchDirectory::create();
  if (scratch.path().empty()) throw Error("cannot make a folder in $TMPDIR or /tmp");
  const fs::path folder = scratch.path();
  torch::manual_seed(1);
  const Model model = make_model(model_name);
  StepCase training{model_name,
                    model.config,
                    dtype,
                    options.optimizer,
                    options.learning_rate,
                    options.batch_size,
                    options.codec,
                    (folder / "initial.safetensors").string()};
  if (training.batch_size == 0) training.batch_size = training.is_gpt() ? 4 : 32;
  write_tensors(training.weights, named_tensors(*model.module));
  if (!options.keep_weights.empty()) fs::copy_file(training.weights, options.keep_weights);
  ContestOptions contest = options.contest;
  // Steps of a small model take well under a millisecond: more of them for the same time.
  if (!options.rounds_given && !training.is_gpt()) contest = {100, 20, 100, contest.patience};
  std::vector<Contestant> contestants = start_contestants(options, training, folder);
  run_contest(contestants, contest);
  return step_results(training, contestants, options.losses);
}

int run_step(StepOptions options) {
  if (options.peers && options.joint_batch > 1)
    throw UsageError("--joint-batch is for rondo alone, without --peers");
  if (!options.bucket_bytes.empty()) parse_bytes(options.bucket_bytes, "--bucket-bytes");
  if (options.codec != "none") make_comm_hook(options.codec, Group());  // throws for an unknown one
  if (options.peers) {
    if (const std::string why = why_no_pytorch(); !why.empty()) {
      std::cerr << "without PyTorch: " << why << "\n";
      options.peers = false;
    }
  }
  prepare_matmul(options.matmul);
  Json results = Json::array();
  for (const std::string& model : options.models) {
    std::vector<std::string> dtypes = options.dtypes;
    if (dtypes.empty())
      dtypes = model == "gpt-25m" ? std::vector<std::string>{"float32", "bfloat16"}
                                  : std::vector<std::string>{"float32"};
    for (const std::string& dtype : dtypes) {
      const Json part = run_case(options, model, dtype);
      if (options.json != "-") print_results(part);
      results.insert(results.end(), part.begin(), part.end());
    }
  }
  write_json(options.json, results);
  return 0;
}

}  // namespace

Command add_step(CLI::App& app) {
  const auto options = std::make_shared<StepOptions>();
  CLI::App* command =
      app.add_subcommand("step", "Training steps: one process, independent processes, ddp, PyTorch");
  command->add_option("--model", options->models, "models to train (default: gpt-25m mlp)")
      ->check(CLI::IsMember({"gpt-25m", "gpt-tiny", "mlp"}));
  command
      ->add_option("--dtype", options->dtypes,
                   "float32, or bfloat16 for autocast (default: both for gpt-25m)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--ranks", options->ranks, "processes, one thread each, pinned to cores")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--batch-size", options->batch_size, "samples per rank (default: 4 for a gpt, 32 for mlp)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--joint-batch", options->joint_batch,
                   "every rondo process computes on so many ranks' batches: with --ranks 1, what so many "
                   "ranks see together")
      ->check(CLI::PositiveNumber);
  command->add_option("--optimizer", options->optimizer)
      ->check(CLI::IsMember({"adamw", "sgd"}))
      ->capture_default_str();
  command->add_option("--learning-rate", options->learning_rate)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--backend", options->backend, "engine of rondo's ddp")
      ->check(CLI::IsMember({"auto", "native", "gloo"}))
      ->capture_default_str();
  command->add_option("--bucket-bytes", options->bucket_bytes,
                      "size of rondo's gradient buckets, such as 5MiB");
  command
      ->add_option("--codec", options->codec,
                   "how ddp's gradients travel (docs/codecs.md); PyTorch too, where it has that hook")
      ->capture_default_str();
  command
      ->add_option("--matmul", options->matmul,
                   "float32 matrix products of rondo's processes: default is PyTorch's, auto the faster ones "
                   "(docs/precision.md)")
      ->check(CLI::IsMember({"auto", "default"}))
      ->capture_default_str();
  command->add_flag("--peers", options->peers, "also run PyTorch's DistributedDataParallel over Gloo");
  auto* rounds =
      command->add_option("--rounds", options->contest.rounds, "turns of every system (default: 6; mlp 20)")
          ->check(CLI::PositiveNumber);
  auto* steps =
      command->add_option("--steps", options->contest.steps, "steps in a turn (default: 4; mlp 100)")
          ->check(CLI::PositiveNumber);
  auto* warm_up =
      command
          ->add_option("--warm-up", options->contest.warm_up, "steps before measuring (default: 2; mlp 100)")
          ->check(CLI::NonNegativeNumber);
  command->add_flag("--losses", options->losses, "the loss of every step, warm-up included, in the JSON");
  command->add_option("--keep-weights", options->keep_weights,
                      "also write the initial weights to FILE (safetensors)");
  command->add_option("--json", options->json, "write the results to FILE, or '-' for standard output");
  command->footer(
      "Systems take turns in short bursts; throughput is the sum over ranks at each rank's median step.\n\n"
      "Examples:\n"
      "  rondo bench step --peers --json step.json\n"
      "  rondo bench step --model gpt-25m --dtype float32 --rounds 10\n"
      "  rondo bench step --model gpt-tiny --peers --losses --rounds 1 --steps 100 --warm-up 0 --json -");
  return {command, [=] {
            options->rounds_given = *rounds || *steps || *warm_up;
            return run_step(*options);
          }};
}

}  // namespace rondo::bench
