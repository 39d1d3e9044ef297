// `rondo bench trainer`: what a step of the Trainer costs over a loop written by hand.
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/bench/commands.h"
#include "apps/bench/print_ratio.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/median.h"
#include "rondo/base/output.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/data/loader.h"
#include "rondo/data/tensors.h"
#include "rondo/data/training_sampler.h"
#include "rondo/launch/scratch.h"
#include "rondo/models/model.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/callbacks/metrics_log.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/progress_display.h"
#include "rondo/train/callbacks/tensor_board.h"
#include "rondo/train/trainer.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct TrainerBenchFlags {
  int turns = 7;
  std::int64_t mlp_steps = 2000;
  std::string gpt = "gpt-25m";
  std::int64_t gpt_steps = 40;
  std::string json;
};

// What is trained, on what, and for how many steps a turn; a tenth more before, which are not counted.
struct TrainerJob {
  std::string model;
  std::shared_ptr<const Dataset> data;
  std::int64_t batch = 1, steps = 1, warm_up = 1;
};

TrainerJob mlp_job(std::int64_t steps) {
  torch::manual_seed(1);
  const at::Tensor inputs = torch::randn({2048, 784});
  return {"mlp",
          std::make_shared<TensorDataset>(Tensors{inputs}, Tensors{inputs.narrow(1, 0, 10).argmax(1)}, 10),
          32, steps, std::max<std::int64_t>(1, steps / 10)};
}

TrainerJob gpt_job(const std::string& model, std::int64_t steps) {
  torch::manual_seed(1);
  const std::int64_t length = model == "gpt-tiny" ? 64 : 128;  // gpt-tiny takes no longer texts
  const at::Tensor tokens = torch::randint(256, {256, length + 1});
  return {model,
          std::make_shared<TensorDataset>(Tensors{tokens.narrow(1, 0, length).contiguous()},
                                          Tensors{tokens.narrow(1, 1, length).contiguous()}, 256),
          4, steps, 2};
}

Model model_of(const TrainerJob& job) {
  torch::manual_seed(7);
  return make_model(job.model);
}

const OptimizerOptions kOptimizer = {.name = "adamw", .learning_rate = 1e-3};

// A loop as one writes it, that reads its loss.
class HandLoop {
 public:
  explicit HandLoop(const TrainerJob& job)
      : model_(model_of(job)),
        optimizer_(make_optimizer(kOptimizer, *model_.module)),
        loader_(job.data, std::make_shared<TrainingSampler>(job.data->size(), TrainingSampler::Options{}),
                {.batch_size = job.batch}) {
    model_.module->train();
    loader_.seek({.epoch = epoch_});
  }
  void step() {
    std::optional<Batch> batch = loader_.next();
    if (!batch) {
      loader_.seek({.epoch = ++epoch_});
      batch = loader_.next();
    }
    optimizer_->zero_grad();
    const Loss loss = cross_entropy(model_.forward(batch->input()), batch->target());
    loss.mean.backward();
    optimizer_->step();
    if (!std::isfinite(loss.sum.item<double>())) throw Error("the loss is not finite");
  }

 private:
  Model model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Loader loader_;
  std::int64_t epoch_ = 0;
};

// Microseconds a step.
double by_hand(const TrainerJob& job) {
  HandLoop loop(job);
  for (std::int64_t step = 0; step < job.warm_up; ++step) loop.step();
  const TimePoint begin = Clock::now();
  for (std::int64_t step = 0; step < job.steps; ++step) loop.step();
  return seconds(Clock::now() - begin) * 1e6 / static_cast<double>(job.steps);
}

class Stopwatch final : public Callback {
 public:
  explicit Stopwatch(const TrainerJob& job) : first_(job.warm_up), last_(job.warm_up + job.steps) {}
  std::string name() const override { return "stopwatch"; }
  void on_step_complete(Trainer&, const StepRecord& record) override {
    if (record.step == first_) begin_ = Clock::now();
    if (record.step == last_) elapsed_ = Clock::now() - begin_;
  }
  Duration elapsed() const { return elapsed_; }

 private:
  std::int64_t first_, last_;
  TimePoint begin_;
  Duration elapsed_{};
};

// Takes a step of the loop by hand after each of the Trainer's, and both times: what a machine does to the
// one it does to the other. A step of the Trainer is all between two of these calls.
class Turns final : public Callback {
 public:
  explicit Turns(const TrainerJob& job) : loop_(job), first_(job.warm_up) {}
  std::string name() const override { return "turns"; }
  void on_step_complete(Trainer&, const StepRecord& record) override {
    const Moment after_trainer;
    loop_.step();
    const Moment after_hand;
    if (record.step > first_) {
      trainer.push_back(after_trainer - begin_);
      by_hand.push_back(after_hand - after_trainer);
    }
    begin_ = after_hand;
  }

  // Microseconds of a step: on the clock, and of the process on all cores.
  struct Step {
    double wall_us = 0, cpu_us = 0;
  };
  std::vector<Step> trainer, by_hand;

 private:
  struct Moment {
    TimePoint wall = Clock::now();
    double cpu_us = static_cast<double>(std::clock()) * (1e6 / CLOCKS_PER_SEC);
    Step operator-(const Moment& before) const {
      return {seconds(wall - before.wall) * 1e6, cpu_us - before.cpu_us};
    }
  };
  HandLoop loop_;
  std::int64_t first_;
  Moment begin_;
};

// Trains by the Trainer, with the callbacks that `rondo train` has (into `folder`) where that is given, and
// `last` behind them.
void train(const TrainerJob& job, const fs::path& folder, std::shared_ptr<Callback> last) {
  const Context context = init({.init_method = "alone"});
  const auto strategy = all_strategies().make("one_device", context);
  Trainer trainer(*strategy, model_of(job));
  trainer.compile(kOptimizer);
  FitOptions options{.steps = job.warm_up + job.steps, .batch_size = job.batch};
  if (!folder.empty()) {
    options.callbacks = {
        std::make_shared<ProgressDisplay>(ProgressDisplay::Options{.style = ProgressStyle::off}),
        std::make_shared<MetricsLog>(MetricsLog::Options{.file = folder / "metrics.jsonl"}),
        std::make_shared<TensorBoard>(TensorBoard::Options{.directory = folder})};
  }
  options.callbacks.push_back(std::move(last));
  trainer.fit(job.data, options);
}

double by_trainer(const TrainerJob& job, const fs::path& folder) {
  const auto watch = std::make_shared<Stopwatch>(job);
  train(job, folder, watch);
  return seconds(watch->elapsed()) * 1e6 / static_cast<double>(job.steps);
}

constexpr std::pair<const char*, bool> kTrainers[] = {{"trainer", false},
                                                      {"trainer, default callbacks", true}};

Json ratio_row(const std::string& what, const std::string& of, double value, double goal) {
  return {{"ratio", what},  {"of", of},     {"to", "by hand"},
          {"value", value}, {"goal", goal}, {"better", "lower"}};
}

// Long steps: those of the Trainer and of the loop by hand one by one in turns, in one process.
Json measure_step_by_step(const TrainerJob& job) {
  Json rows = Json::array();
  for (const auto& [system, has_callbacks] : kTrainers) {
    const auto scratch = launch::ScratchDirectory::create();
    const auto turns = std::make_shared<Turns>(job);
    train(job, has_callbacks ? fs::path(scratch.path()) : fs::path(), turns);
    const auto figures = [&](const std::string& name, const std::vector<Turns::Step>& steps) {
      std::vector<double> wall, cpu;
      for (const Turns::Step& step : steps) {
        wall.push_back(step.wall_us);
        cpu.push_back(step.cpu_us);
      }
      rows.push_back({{"model", job.model},
                      {"system", name},
                      {"step_us", *std::min_element(wall.begin(), wall.end())},
                      {"p50_us", median(wall)},
                      {"cpu_p50_us", median(cpu)}});
    };
    figures(system, turns->trainer);
    figures(str("by hand, beside ", system), turns->by_hand);
    std::vector<double> wall, cpu;
    for (std::size_t i = 0; i < turns->trainer.size(); ++i) {
      wall.push_back(100 * (turns->trainer[i].wall_us / turns->by_hand[i].wall_us - 1));
      cpu.push_back(100 * (turns->trainer[i].cpu_us / turns->by_hand[i].cpu_us - 1));
    }
    const std::string of = str(job.model, ", ", system);
    rows.push_back(ratio_row("% of a step over a loop by hand, p50 of pairs", of, median(wall), 1));
    rows.push_back(ratio_row("% of processor time over a loop by hand, p50 of pairs", of, median(cpu), 1));
  }
  return rows;
}

// Short steps: many of each system, and the fastest turn of each.
Json measure_in_turns(const TrainerJob& job, int turns) {
  std::map<std::string, double> best;
  const auto keep = [&](const char* system, double step_us) {
    const auto [found, is_new] = best.emplace(system, step_us);
    if (!is_new) found->second = std::min(found->second, step_us);
  };
  for (int turn = 0; turn < turns; ++turn) {
    const auto scratch = launch::ScratchDirectory::create();
    keep("by hand", by_hand(job));
    keep("trainer", by_trainer(job, {}));
    keep("trainer, default callbacks", by_trainer(job, scratch.path()));
  }
  Json rows = Json::array();
  for (const auto& [system, step_us] : best)
    rows.push_back({{"model", job.model}, {"system", system}, {"step_us", step_us}});
  const auto over = [&](const char* system, double goal) {
    rows.push_back(ratio_row("us a step over a loop by hand", str(job.model, ", ", system),
                             best.at(system) - best.at("by hand"), goal));
  };
  over("trainer", 5);
  over("trainer, default callbacks", 15);
  return rows;
}

int run_trainer_bench(const TrainerBenchFlags& flags) {
  Json rows = measure_in_turns(mlp_job(flags.mlp_steps), flags.turns);
  for (const Json& row : measure_step_by_step(gpt_job(flags.gpt, flags.gpt_steps))) rows.push_back(row);
  if (flags.json != "-") {
    for (const Json& row : rows) {
      if (row.contains("ratio")) {
        print_ratio(row, 40);
      } else {
        std::printf("%-10s %-28s %12.1f us a step\n", row["model"].get<std::string>().c_str(),
                    row["system"].get<std::string>().c_str(), row["step_us"].get<double>());
      }
    }
  }
  write_json(flags.json, rows);
  return 0;
}

}  // namespace

Command add_trainer(CLI::App& parent) {
  const auto flags = std::make_shared<TrainerBenchFlags>();
  CLI::App* app = parent.add_subcommand(
      "trainer", "A step of the Trainer, with and without callbacks, next to a loop by hand");
  app->option_defaults()->always_capture_default();
  add_turns_flag(*app, "--turns", flags->turns, "Turns of each system with the MLP; the fastest counts");
  app->add_option("--mlp-steps", flags->mlp_steps, "Steps of a turn of the MLP")
      ->check(rondo::between(1, 1000000));
  app->add_option("--gpt", flags->gpt, "The GPT")->check(CLI::IsMember({"gpt-tiny", "gpt-25m"}));
  app->add_option("--gpt-steps", flags->gpt_steps,
                  "Steps of the GPT, of the Trainer and by hand one by one in turns")
      ->check(rondo::between(1, 1000000));
  add_json_flag(*app, flags->json);
  return {app, [flags] { return run_trainer_bench(*flags); }};
}

}  // namespace rondo::bench
