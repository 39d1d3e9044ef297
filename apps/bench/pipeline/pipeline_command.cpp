// `rondo bench pipeline`: steps of pipelines next to their simulation, to PyTorch's, and between hosts to
// ddp's.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "apps/bench/commands.h"
#include "apps/bench/emulated_hosts.h"
#include "apps/bench/pipeline/result.h"
#include "apps/bench/python.h"
#include "apps/common/flag_checks.h"
#include "apps/common/matmul_setup.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/launch/scratch.h"
#include "rondo/models/model.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kEmulatedUnitsOfRank = 2;  // as many as zb_v and interleaved have stages

struct PipelineBenchOptions {
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};
  std::string model = "gpt-25m";
  int ranks = 2;
  int micro_batches = 8;
  std::int64_t batch_size = 8;
  double emulated_unit_ms = 0;
  Network network = {.rate = "1gbit"};
  std::string matmul = "auto";
  bool peers = false;
  int rounds = 4;
  int steps = 4;
  int warm_up = 2;
  std::string json;
};

void check_pipeline_options(PipelineBenchOptions& options) {
  Network& network = options.network;
  network.bits_per_second = network.hosts > 1 ? bits_per_second(network.rate) : 0;
  if (options.ranks % network.hosts != 0) {
    throw UsageError(
        str("--ranks ", options.ranks, " does not divide among --emulate-hosts ", network.hosts));
  }
  if (options.batch_size % options.ranks != 0)
    throw UsageError(
        str("--batch-size ", options.batch_size, " does not divide among --ranks ", options.ranks));
  if (options.peers && options.emulated_unit_ms > 0)
    throw UsageError("--peers compute on the processor: they have no --emulate-accelerator");
  if (!options.peers) return;
  if (const std::string why = why_no_pytorch(); !why.empty()) {
    std::cerr << "without PyTorch: " << why << "\n";
    options.peers = false;
  }
}

PipelineCase make_pipeline_case(const PipelineBenchOptions& options, const fs::path& folder) {
  PipelineCase what{.training = {.model = options.model,
                                 .config = {{"unit_ms", options.emulated_unit_ms},
                                            {"units", options.ranks * kEmulatedUnitsOfRank}},
                                 .dtype = "float32",
                                 .optimizer = options.emulated_unit_ms > 0 ? "sgd" : "adamw",
                                 .learning_rate = 3e-4,
                                 .batch_size = options.batch_size,
                                 .weights = (folder / "initial.safetensors").string()},
                    .network = options.network,
                    .ranks = options.ranks,
                    .micro_batches = options.micro_batches,
                    .emulated = options.emulated_unit_ms > 0};
  if (what.emulated) return what;
  torch::manual_seed(1);
  const Model model = make_model(options.model);
  what.training.config = model.config;
  write_tensors(what.training.weights, named_tensors(*model.module));
  return what;
}

class PipelineStarter {
 public:
  PipelineStarter(const PipelineCase& what, FleetPlace place) : what_(what), place_(std::move(place)) {}

  PipelineContestant pipeline(const std::string& schedule) const {
    return rondo("pipeline", schedule,
                 {"--pipeline-schedule", schedule, "--micro-batches", str(what_.micro_batches)});
  }
  PipelineContestant ddp() const { return rondo("ddp", "", {}); }
  PipelineContestant pytorch(const std::string& schedule) const {
    const std::vector<std::string> command = {python(), peer_script("pipeline.py"), "--pipeline-schedule",
                                              schedule, "--micro-batches",          str(what_.micro_batches)};
    return {.system = "pytorch",
            .schedule = schedule,
            .fleet = start_fleet("pytorch " + schedule, command, {}, what_.training, place_)};
  }

 private:
  PipelineContestant rondo(const std::string& strategy, const std::string& schedule,
                           const std::vector<std::string>& more) const {
    std::vector<std::string> command = {fs::read_symlink("/proc/self/exe").string(),
                                        "pipeline-worker",
                                        "--strategy",
                                        strategy,
                                        "--model",
                                        what_.training.model};
    command.insert(command.end(), more.begin(), more.end());
    return {
        .system = "rondo",
        .schedule = schedule,
        .fleet = start_fleet(str("rondo ", strategy, " ", schedule), command, {}, what_.training, place_)};
  }

  const PipelineCase& what_;
  FleetPlace place_;
};

int run_pipeline_bench(PipelineBenchOptions options) {
  check_pipeline_options(options);
  if (options.emulated_unit_ms == 0) prepare_matmul(options.matmul);
  const auto scratch = launch::ScratchDirectory::create();
  if (scratch.path().empty()) throw Error("cannot make a folder in $TMPDIR or /tmp");
  const PipelineCase what = make_pipeline_case(options, scratch.path());
  std::optional<EmulatedHosts> hosts;
  if (options.network.hosts > 1) hosts.emplace(options.network.hosts, options.network.rate);
  const PipelineStarter starter(what, {.ranks = options.ranks,
                                       .pinned = !what.emulated,
                                       .hosts = hosts ? &*hosts : nullptr,
                                       .scratch = scratch.path()});
  std::vector<PipelineContestant> all;
  const auto in_turns = [&](std::vector<PipelineContestant> contestants) {
    for (int round = options.warm_up > 0 ? -1 : 0; round < options.rounds; ++round) {
      for (PipelineContestant& contestant : contestants) {
        take_turn(contestant, options.micro_batches, round < 0 ? options.warm_up : options.steps, round >= 0,
                  Deadline::after(std::chrono::minutes(10)));
      }
    }
    for (PipelineContestant& contestant : contestants) {
      contestant.fleet.reset();  // its processes end
      all.push_back(std::move(contestant));
    }
  };
  if (options.peers) {
    // A schedule and its peer at a time: all together would need the memory of twenty models.
    for (const std::string& schedule : options.schedules) {
      std::vector<PipelineContestant> pair;
      pair.push_back(starter.pipeline(schedule));
      pair.push_back(starter.pytorch(schedule));
      in_turns(std::move(pair));
    }
  } else {
    std::vector<PipelineContestant> contestants;
    if (options.network.hosts > 1) contestants.push_back(starter.ddp());
    for (const std::string& schedule : options.schedules) contestants.push_back(starter.pipeline(schedule));
    in_turns(std::move(contestants));
  }
  const nlohmann::ordered_json results = pipeline_results(what, all);
  if (options.json != "-") print_pipeline_results(results);
  write_json(options.json, results);
  return 0;
}

}  // namespace

Command add_pipeline(CLI::App& app) {
  const auto options = std::make_shared<PipelineBenchOptions>();
  CLI::App* command = app.add_subcommand(
      "pipeline", "Pipelines: their schedules next to the simulation, PyTorch's, and ddp between hosts");
  command->add_option("--pipeline-schedule", options->schedules, "schedules to run (default: all)")
      ->check(CLI::IsMember(pipeline::schedule_names()));
  command->add_option("--model", options->model)
      ->check(CLI::IsMember({"gpt-25m", "gpt-tiny"}))
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "stages, or half of them; processes of one thread each")
      ->check(rondo::between(2, 64))
      ->capture_default_str();
  command->add_option("--batch-size", options->batch_size, "samples that go through all stages")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command->add_option("--micro-batches", options->micro_batches, "into which they are cut")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command
      ->add_option("--emulate-accelerator", options->emulated_unit_ms,
                   "in place of the model two units a rank whose forward, input gradient and weight gradient "
                   "take so many ms each, in which the core is free")
      ->check(rondo::positive_number());
  command
      ->add_option("--emulate-hosts", options->network.hosts,
                   "spread the ranks over so many emulated hosts (as root), and run ddp too")
      ->check(rondo::between(1, 200));
  command->add_option("--rate", options->network.rate, "rate of their links, as tc writes it")
      ->capture_default_str();
  command
      ->add_option("--matmul", options->matmul,
                   "rondo's matrix products: the fastest found (auto), as rondo train has them, or PyTorch's "
                   "own (default)")
      ->check(CLI::IsMember({"libtorch", "auto"}))
      ->capture_default_str();
  command->add_flag("--peers", options->peers, "also run PyTorch's torch.distributed.pipelining over Gloo");
  command->add_option("--rounds", options->rounds, "turns of every system")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command->add_option("--steps", options->steps, "steps in a turn; the first of several is not counted")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command->add_option("--warm-up", options->warm_up, "steps before measuring")
      ->check(rondo::not_negative_number())
      ->capture_default_str();
  add_json_flag(*command, options->json);
  command->footer(
      "Examples:\n"
      "  rondo bench pipeline --peers --json pipeline.json\n"
      "  rondo bench pipeline --ranks 4 --emulate-accelerator 10\n"
      "  rondo bench pipeline --emulate-hosts 2 --rate 1gbit --pipeline-schedule 1f1b zb_h1 zb_v");
  return {command, [options] { return run_pipeline_bench(*options); }};
}

}  // namespace rondo::bench
