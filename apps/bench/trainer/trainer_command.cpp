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
#include "rondo/data/dataset.h"
#include "rondo/data/loader.h"
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
  std::int64_t mlp_steps = 4000;
  std::string gpt = "gpt-25m";
  std::int64_t gpt_steps = 40;
  std::string json;
};

// What is trained, on what, and for how many steps each way; `warm_up` more before, which are not counted, at
// least a turn.
struct TrainerJob {
  std::string model;
  std::shared_ptr<const Dataset> data;
  std::int64_t batch = 1, steps = 1, warm_up = 1;
  // Steps before the other one's turn: several of short ones, so that each finds the caches as its own last
  // step left them.
  std::int64_t turn = 1;
};

TrainerJob mlp_job(std::int64_t steps) {
  torch::manual_seed(1);
  const at::Tensor inputs = torch::randn({2048, 784});
  return {"mlp",
          std::make_shared<TensorDataset>(Tensors{inputs}, Tensors{inputs.narrow(1, 0, 10).argmax(1)}, 10),
          32,
          steps,
          std::max<std::int64_t>(10, steps / 10),
          10};
}

TrainerJob gpt_job(const std::string& model, std::int64_t steps) {
  torch::manual_seed(1);
  const std::int64_t length = model == "gpt-tiny" ? 64 : 128;  // gpt-tiny takes no longer texts
  const at::Tensor tokens = torch::randint(256, {256, length + 1});
  return {model,
          std::make_shared<TensorDataset>(Tensors{tokens.narrow(1, 0, length).contiguous()},
                                          Tensors{tokens.narrow(1, 1, length).contiguous()}, 256),
          4,
          steps,
          2,
          1};
}

Model model_of(const TrainerJob& job) {
  torch::manual_seed(7);
  return make_model(job.model);
}

const OptimizerOptions kOptimizer = {.name = "adamw", .learning_rate = 1e-3};

// A loop as one writes it, that reads its loss. It has the Trainer's model and optimizer, since a step of the
// same model elsewhere in memory may take tens of microseconds more or less.
class HandLoop {
 public:
  HandLoop(const TrainerJob& job, const Model& model, torch::optim::Optimizer& optimizer)
      : model_(model),
        optimizer_(optimizer),
        loader_(job.data, std::make_shared<TrainingSampler>(job.data->size(), TrainingSampler::Options{}),
                {.batch_size = job.batch}) {
    loader_.seek({.epoch = epoch_});
  }
  void step() {
    std::optional<Batch> batch = loader_.next();
    if (!batch) {
      loader_.seek({.epoch = ++epoch_});
      batch = loader_.next();
    }
    optimizer_.zero_grad();
    const Loss loss = cross_entropy(model_.forward(batch->input()), batch->target());
    loss.mean.backward();
    optimizer_.step();
    if (!std::isfinite(loss.sum.item<double>())) throw Error("the loss is not finite");
  }

 private:
  const Model& model_;
  torch::optim::Optimizer& optimizer_;
  Loader loader_;
  std::int64_t epoch_ = 0;
};

// Takes steps of the loop by hand after as many of the Trainer's, and both times: what a machine does to the
// one it does to the other. A turn of the Trainer is all between two turns by hand.
class Turns final : public Callback {
 public:
  explicit Turns(const TrainerJob& job) : job_(job) {}
  std::string name() const override { return "turns"; }
  void on_step_complete(Trainer& of, const StepRecord& record) override {
    if (record.step % job_.turn != 0) return;
    const Moment after_trainer;
    if (!loop_) loop_.emplace(job_, of.model(), of.optimizer());
    for (std::int64_t step = 0; step < job_.turn; ++step) loop_->step();
    const Moment after_hand;
    if (record.step > job_.warm_up) {
      const auto steps = static_cast<double>(job_.turn);
      trainer.push_back(after_trainer.since(begin_, steps));
      by_hand.push_back(after_hand.since(after_trainer, steps));
    }
    begin_ = after_hand;
  }

  // Microseconds of a step: on the clock, and of the process on all cores.
  struct Step {
    double wall_us = 0, cpu_us = 0;
  };
  // Of each turn, the same number of both.
  std::vector<Step> trainer, by_hand;

 private:
  struct Moment {
    TimePoint wall = Clock::now();
    double cpu_us = static_cast<double>(std::clock()) * (1e6 / CLOCKS_PER_SEC);
    Step since(const Moment& before, double steps) const {
      return {seconds(wall - before.wall) * 1e6 / steps, (cpu_us - before.cpu_us) / steps};
    }
  };
  const TrainerJob& job_;
  std::optional<HandLoop> loop_;
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

constexpr std::pair<const char*, bool> kTrainers[] = {{"trainer", false},
                                                      {"trainer, default callbacks", true}};

Json ratio_row(const std::string& what, const std::string& of, double value, const Json& goal) {
  return {{"ratio", what},  {"of", of},     {"to", "by hand"},
          {"value", value}, {"goal", goal}, {"better", "lower"}};
}

// What the Trainer adds to a step by hand, by how it is judged: its share in a long step, microseconds in a
// short one.
struct Judgement {
  std::string what;
  double (*more)(double trainer_us, double by_hand_us) = nullptr;
  double goal = 0, goal_with_callbacks = 0;
};

double percent_more(double trainer_us, double by_hand_us) { return 100 * (trainer_us / by_hand_us - 1); }
double us_more(double trainer_us, double by_hand_us) { return trainer_us - by_hand_us; }

const Judgement kOfShortSteps = {"us", us_more, 5, 15};
const Judgement kOfLongSteps = {"%", percent_more, 1, 1};

Json measure(const TrainerJob& job, const Judgement& judgement) {
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
      wall.push_back(judgement.more(turns->trainer[i].wall_us, turns->by_hand[i].wall_us));
      cpu.push_back(judgement.more(turns->trainer[i].cpu_us, turns->by_hand[i].cpu_us));
    }
    const std::string of = str(job.model, ", ", system);
    const double goal = has_callbacks ? judgement.goal_with_callbacks : judgement.goal;
    rows.push_back(
        ratio_row(judgement.what + " of a step over a loop by hand, p50 of pairs", of, median(wall), goal));
    // The goal is about how long a step takes.
    rows.push_back(ratio_row(judgement.what + " of processor time over a loop by hand, p50 of pairs", of,
                             median(cpu), nullptr));
  }
  return rows;
}

int run_trainer_bench(const TrainerBenchFlags& flags) {
  Json rows = measure(mlp_job(flags.mlp_steps), kOfShortSteps);
  for (const Json& row : measure(gpt_job(flags.gpt, flags.gpt_steps), kOfLongSteps)) rows.push_back(row);
  if (flags.json != "-") {
    for (const Json& row : rows) {
      if (row.contains("ratio")) {
        print_ratio(row, 40);
      } else {
        std::printf("%-10s %-44s %12.1f us a step\n", row["model"].get<std::string>().c_str(),
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
  app->add_option("--mlp-steps", flags->mlp_steps,
                  "Steps of the MLP, of the Trainer and by hand in turns of ten")
      ->check(rondo::between(10, 1000000));
  app->add_option("--gpt", flags->gpt, "The GPT")->check(CLI::IsMember({"gpt-tiny", "gpt-25m"}));
  app->add_option("--gpt-steps", flags->gpt_steps,
                  "Steps of the GPT, of the Trainer and by hand one by one in turns")
      ->check(rondo::between(1, 1000000));
  add_json_flag(*app, flags->json);
  return {app, [flags] { return run_trainer_bench(*flags); }};
}

}  // namespace rondo::bench
