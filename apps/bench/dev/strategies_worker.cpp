// One process of `rondo bench-dev strategies`: a rank, a worker or a server, as determined by the launcher.
// Trains for a given time and writes the results of each step to a file of its own.
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <iostream>

#include "apps/bench/commands.h"
#include "apps/bench/dev/emulated_accelerator.h"
#include "apps/common/flag_checks.h"
#include "rondo/backend/context.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/env/cluster.h"
#include "rondo/memory/tracker.h"
#include "rondo/parallel/grouped/group_place.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/server/server_strategy.h"
#include "rondo/server/task.h"
#include "rondo/strategy/training.h"

namespace rondo::bench {
namespace {

constexpr std::int64_t kUnits = 3;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kInputs = 64;

struct StudyWorkerOptions {
  std::string strategy = "ddp";
  std::vector<std::string> options;  // NAME=VALUE
  bool embedding = false;            // the computing model instead of the emulated one
  double seconds = 3;
  double unit_ms = 4;  // forward of a unit; each gradient takes as long
  double slow_by = 1;  // slowdown of the last worker's units
  double learning_rate = 0.05;
  std::string results;  // path of a directory
};

// Noisy random points around ten centres: the loss falls for several hundred steps.
struct Points {
  Points() : generator(at::make_generator<at::CPUGeneratorImpl>(1)) {
    centres = at::randn({kClasses, kInputs}, generator, at::kFloat) * 0.35;
  }
  Batch draw(std::int64_t samples, at::Generator& random) const {
    Batch batch;
    const at::Tensor classes = at::randint(0, kClasses, {samples}, random, at::kLong);
    batch.inputs = {centres.index_select(0, classes) + at::randn({samples, kInputs}, random, at::kFloat)};
    batch.targets = {classes};
    batch.samples = samples;
    return batch;
  }
  at::Generator generator;
  at::Tensor centres;
};

Model make_emulated_model(const EmulatedTimes& times) {
  torch::manual_seed(7);
  const auto net = std::make_shared<torch::nn::SequentialImpl>();
  std::int64_t width = kInputs;
  for (std::int64_t unit = 0; unit < kUnits; ++unit) {
    net->push_back(torch::nn::Linear(width, unit + 1 == kUnits ? kClasses : 128));
    if (unit + 1 < kUnits) net->push_back(torch::nn::Tanh());
    width = 128;
  }
  return {.name = "emulated",
          .config = nlohmann::json::object(),
          .module = net,
          .forward = [net, times](const at::Tensor& input) {
            at::Tensor values = input.detach().requires_grad_();
            for (auto& layer : *net) {
              values = layer.forward(values);
              if (layer.ptr()->as<torch::nn::Linear>() != nullptr) values = emulated_unit(values, times);
            }
            return values;
          }};
}

constexpr std::int64_t kWords = 40'000;  // words of 64 numbers each: 10 MB
constexpr std::int64_t kWordsOfSample = 20;

Model make_embedding_model() {
  return emulated_model(torch::nn::Sequential(
      torch::nn::EmbeddingBag(
          torch::nn::EmbeddingBagOptions(kWords, kInputs).mode(torch::kMean).sparse(true)),
      torch::nn::Linear(kInputs, kClasses)));
}

Batch draw_words(std::int64_t samples, at::Generator& random) {
  return {.inputs = {at::randint(0, kWords, {samples, kWordsOfSample}, random, at::kLong)},
          .targets = {at::randint(0, kClasses, {samples}, random, at::kLong)},
          .samples = samples};
}

int run_study_worker(const StudyWorkerOptions& options) {
  const auto cluster = env::read_cluster(env::process_environment());
  if (cluster && cluster->is_server) {
    server::run_task(*cluster);
    return 0;
  }
  track_cpu_allocations();
  at::set_num_threads(1);
  OptionValues values;
  for (const std::string& option : options.options) {
    const std::size_t equals = option.find('=');
    values[option.substr(0, equals)] = option.substr(equals + 1);
  }
  InitOptions init_options;
  if (options.strategy == "grouped") {
    init_options =
        init_options_of_group(static_cast<int>(parse_integer(values.at("ps-groups"), "ps-groups")));
  } else if (cluster) {
    init_options.init_method = "alone";
  }
  const Context context = init(init_options);
  const int number = cluster ? cluster->index : context.rank();
  const int workers = cluster ? static_cast<int>(cluster->workers.size()) : context.world_size();
  const auto strategy = all_strategies().make(options.strategy, context, values);

  const bool is_slow = number == workers - 1 && workers > 1;
  const EmulatedTimes times = equal_times(options.unit_ms * (is_slow ? options.slow_by : 1));
  const auto training = strategy->prepare(
      {.model = [&] { return options.embedding ? make_embedding_model() : make_emulated_model(times); },
       .optimizer = [&](torch::nn::Module& module) -> std::unique_ptr<torch::optim::Optimizer> {
         return std::make_unique<torch::optim::SGD>(module.parameters(), options.learning_rate);
       }});
  const Points points;
  auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 + number));
  nlohmann::json rows = nlohmann::json::array();
  TimePoint begin = Clock::now();
  for (std::int64_t step = 0;; ++step) {
    // The first step connects to the servers and allocates state.
    if (step == 1) begin = Clock::now();
    const double elapsed = seconds(Clock::now() - begin);
    const StepResult result = training->train_step(
        std::vector{options.embedding ? draw_words(32, random) : points.draw(16, random)},
        {.step = step, .stop_requested = [&] { return step > 0 && elapsed > options.seconds; }});
    if (step > 0)
      rows.push_back(
          {seconds(Clock::now() - begin),
           result.totals.loss / static_cast<double>(std::max<std::int64_t>(result.totals.predictions, 1))});
    if (result.totals.stop) break;
  }
  nlohmann::json report = {{"rows", rows}, {"peak_bytes", replica_memory_tracker().peak_total()}};
  write_own_file(str(options.results, "/", number, ".json"), report.dump());
  return 0;
}

}  // namespace

Command add_strategies_worker(CLI::App& app) {
  const auto options = std::make_shared<StudyWorkerOptions>();
  CLI::App* command =
      app.add_subcommand("strategies-worker", "A process of `rondo bench-dev strategies`")->group("");
  command->add_option("--strategy", options->strategy);
  command->add_option("--option", options->options)->allow_extra_args(false);
  command->add_flag("--embedding", options->embedding);
  command->add_option("--seconds", options->seconds);
  command->add_option("--unit-ms", options->unit_ms);
  command->add_option("--slow-by", options->slow_by);
  command->add_option("--lr", options->learning_rate);
  command->add_option("--results", options->results)->required();
  return {command, [options] { return run_study_worker(*options); }};
}

}  // namespace rondo::bench
