// `rondo bench-dev trainer`: the overhead of a Trainer's step over a hand-written loop.
#include <fcntl.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <ctime>
#include <filesystem>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/processes.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/progress.h"
#include "rondo/base/text.h"
#include "rondo/data/dataset.h"
#include "rondo/data/loader.h"
#include "rondo/data/training_sampler.h"
#include "rondo/format/run_progress.h"
#include "rondo/models/model.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/callbacks/live_progress.h"
#include "rondo/train/callbacks/metrics_log.h"
#include "rondo/train/callbacks/progress_display.h"
#include "rondo/train/log_targets/tensorboard/tensor_board.h"
#include "rondo/train/trainer.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

struct TrainerBenchFlags {
  std::int64_t mlp_steps = 4000;
  std::string gpt = "gpt-25m";
  std::int64_t gpt_steps = 40;
};

// The training of one model.
struct TrainerJob {
  std::string model;
  std::shared_ptr<const Dataset> data;
  std::int64_t batch = 1, steps = 1;
  std::int64_t warm_up = 1;  // steps before the measured ones, at least one turn
  // Steps per turn. Several for short steps, so that each finds the caches as its own previous step left
  // them.
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
  const std::int64_t length = model == "gpt-tiny" ? 64 : 128;  // longest text of gpt-tiny
  const at::Tensor tokens = torch::randint(256, {256, length + 1});
  return {model,
          std::make_shared<TensorDataset>(Tensors{tokens.narrow(1, 0, length).contiguous()},
                                          Tensors{tokens.narrow(1, 1, length).contiguous()}, 256),
          4,
          steps,
          2,
          1};
}

// A typical hand-written loop that reads its loss. It shares the Trainer's model and optimizer, since a step
// of the same model at another address may differ by tens of microseconds.
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

// Alternates turns of the Trainer with turns of the hand-written loop, and times both, so that a disturbance
// of the machine affects both. The time of a Trainer's turn is everything between two turns of the loop.
class TurnsByHand final : public Callback {
 public:
  explicit TurnsByHand(const TrainerJob& job) : job_(job) {}
  std::string name() const override { return "turns"; }
  void on_step_complete(Trainer& of, const StepRecord& record) override {
    if (record.step % job_.turn != 0) return;
    const Moment after_trainer;
    if (!loop_) loop_.emplace(job_, of.model(), of.optimizer());
    for (std::int64_t step = 0; step < job_.turn; ++step) loop_->step();
    const Moment after_hand;
    if (record.step > job_.warm_up) {
      trainer.add(begin_, after_trainer, job_.turn);
      by_hand.add(after_trainer, after_hand, job_.turn);
    }
    begin_ = after_hand;
  }

 private:
  struct Moment {
    TimePoint wall = Clock::now();
    double cpu_us = static_cast<double>(std::clock()) * (1e6 / CLOCKS_PER_SEC);
  };

 public:
  // Microseconds per step in each turn: wall time, and CPU time of the process on all cores.
  struct Steps {
    std::vector<double> wall_us, cpu_us;
    void add(const Moment& begin, const Moment& end, std::int64_t steps) {
      wall_us.push_back(seconds(end.wall - begin.wall) * 1e6 / static_cast<double>(steps));
      cpu_us.push_back((end.cpu_us - begin.cpu_us) / static_cast<double>(steps));
    }
  };
  Steps trainer, by_hand;

 private:
  const TrainerJob& job_;
  std::optional<HandLoop> loop_;
  Moment begin_;
};

// Trains by the Trainer, followed by `last`. If `folder` is given, adds the callbacks of `rondo train`, which
// write there.
void train(const TrainerJob& job, const fs::path& folder, std::shared_ptr<Callback> last) {
  const Context context = init({.init_method = "alone"});
  const auto strategy = all_strategies().make("one_device", context);
  torch::manual_seed(7);
  Trainer trainer(*strategy, make_model(job.model));
  trainer.compile(OptimizerOptions{.name = "adamw", .learning_rate = 1e-3});
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

// The unit of the Trainer's overhead over a hand-written step: a share for long steps, microseconds for short
// ones.
struct Overhead {
  std::string unit;
  double (*more)(double trainer_us, double by_hand_us) = nullptr;
  double goal = 0, goal_with_callbacks = 0;
};

Json measure_job(const TrainerJob& job, const Overhead& overhead) {
  Json rows = Json::array();
  for (const bool has_callbacks : {false, true}) {
    const auto scratch = make_scratch();
    const std::string system = has_callbacks ? "trainer, default callbacks" : "trainer";
    const auto turns = std::make_shared<TurnsByHand>(job);
    train(job, has_callbacks ? fs::path(scratch.path()) : fs::path(), turns);
    const auto add = [&](const std::string& name, const TurnsByHand::Steps& steps) {
      rows.push_back({{"model", job.model},
                      {"system", name},
                      {"step_us", fastest(steps.wall_us)},
                      {"p50_us", median(steps.wall_us)},
                      {"cpu_p50_us", median(steps.cpu_us)}});
    };
    add(system, turns->trainer);
    add(str("by hand, beside ", system), turns->by_hand);
    const auto compare = [&](const char* time, auto member, std::optional<double> goal) {
      std::vector<double> more;
      for (std::size_t i = 0; i < turns->trainer.wall_us.size(); ++i)
        more.push_back(overhead.more((turns->trainer.*member)[i], (turns->by_hand.*member)[i]));
      rows.push_back(ratio_row({str(overhead.unit, " of ", time, " over a loop by hand, p50 of pairs"),
                                str(job.model, ", ", system), "by hand", median(more), goal, false}));
    };
    compare("a step", &TurnsByHand::Steps::wall_us,
            has_callbacks ? overhead.goal_with_callbacks : overhead.goal);
    // The goal applies to the wall time.
    compare("processor time", &TurnsByHand::Steps::cpu_us, std::nullopt);
  }
  return rows;
}

// Runs the callbacks of a training's progress many times at the end of a step, and times each of their
// outputs.
class ProgressCost final : public Callback {
 public:
  explicit ProgressCost(fs::path folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "progress_cost"; }

  void on_train_begin(Trainer& trainer, const FitOutline& outline) override {
    display_.on_train_begin(trainer, outline);
    live_.emplace(folder_).on_train_begin(trainer, outline);
  }
  void on_step_end(Trainer& trainer, const StepRecord& record) override {
    if (!rows.empty()) return;  // the last step, which is always shown
    constexpr int kSteps = 1'000'000;
    constexpr int kOutputs = 10'000;
    const auto add = [this](const char* what, int times, const std::function<void()>& action) {
      rows.push_back({{"progress", what}, {"ns", 1e9 * timed([&] {
                                                   for (int i = 0; i < times; ++i) action();
                                                 }) / times}});
    };
    add("a step", kSteps, [&] {
      display_.on_step_end(trainer, record);
      live_->on_step_end(trainer, record);
    });
    ProgressOptions options{.style = ProgressStyle::bar, .total_steps = kOutputs};
    options.redraw_every = Duration::zero();
    Progress bar(sink_.get(), options);
    add("redraw of the bar", kOutputs, [&] { bar.update({.step = record.step, .loss = record.loss}); });
    RunProgressFile file(folder_);
    add("progress.json", kOutputs, [&] { file.write({.step = record.step, .loss = record.loss}); });
  }
  void on_train_end(Trainer& trainer, const FitResult& result) override {
    display_.on_train_end(trainer, result);
    live_->on_train_end(trainer, result);
  }

  Json rows = Json::array();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  fs::path folder_;
  std::unique_ptr<std::FILE, Close> sink_{::fdopen(::open("/dev/null", O_WRONLY | O_CLOEXEC), "w")};
  ProgressDisplay display_{{.stream = sink_.get(), .style = ProgressStyle::bar}};
  std::optional<LiveProgress> live_;
};

Json measure_progress() {
  const auto scratch = make_scratch();
  const auto cost = std::make_shared<ProgressCost>(scratch.path());
  TrainerJob job = mlp_job(2);
  job.warm_up = 0;
  train(job, {}, cost);
  return cost->rows;
}

Json run_trainer_bench(const TrainerBenchFlags& flags, bool prints) {
  Json rows = measure_job(mlp_job(flags.mlp_steps),
                          {"us", [](double ours, double by_hand) { return ours - by_hand; }, 5, 15});
  const Json of_gpt =
      measure_job(gpt_job(flags.gpt, flags.gpt_steps),
                  {"%", [](double ours, double by_hand) { return 100 * (ours / by_hand - 1); }, 1, 1});
  const Json of_progress = measure_progress();
  for (const Json& more : {of_gpt, of_progress}) rows.insert(rows.end(), more.begin(), more.end());
  if (prints) {
    print_table(rows, {{"model", -10, "model"}, {"system", -44, "system"}, {"us a step", 12, "step_us", 1}},
                40);
    print_table(of_progress, {{"progress", -20, "progress"}, {"ns", 10, "ns", 0}});
  }
  return rows;
}

}  // namespace

Command add_trainer(CLI::App& parent) {
  return add_benchmark<TrainerBenchFlags>(
      parent,
      {"trainer",
       "A step of the Trainer, with and without callbacks, compared with a manual loop; cost of progress",
       "Examples:\n  rondo bench-dev trainer"},
      [](CLI::App& app, TrainerBenchFlags& flags) {
        app.add_option("--mlp-steps", flags.mlp_steps,
                       "Steps of the MLP; Trainer and manual loop alternate every ten steps")
            ->check(between(10, 1000000));
        app.add_option("--gpt", flags.gpt, "GPT model to train")
            ->check(CLI::IsMember({"gpt-tiny", "gpt-25m"}));
        app.add_option("--gpt-steps", flags.gpt_steps,
                       "Steps of the GPT; Trainer and manual loop alternate every step")
            ->check(between(1, 1000000));
      },
      run_trainer_bench);
}

}  // namespace rondo::bench
