// `rondo bench-dev memory-tracking`: a training step with memory tracking, compared with one without.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <iostream>
#include <limits>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/processes.h"
#include "rondo/backend/context.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/text.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/trainer.h"

namespace rondo::bench {
namespace {

constexpr double kGoal = 1.01;
constexpr auto kPatience = std::chrono::minutes(2);

struct TrackingFlags {
  std::string model = "gpt-25m";
  std::int64_t batch_size = 4;
  int rounds = 10;
  int steps = 3;
  int warm_up = 3;
  bool is_worker = false;
  bool tracked = false;
};

// Waits for a line with a number of steps, runs them, and answers with their time in milliseconds. Meanwhile
// the other contestant runs.
class AnsweredTurns final : public Callback {
 public:
  std::string name() const override { return "turns"; }
  void on_train_begin(Trainer&, const FitOutline&) override {
    std::cout << Json{{"ready", true}}.dump() << std::endl;
    next_turn();
  }
  void on_step_end(Trainer&, const StepRecord&) override {
    const TimePoint now = Clock::now();
    step_ms_.push_back(milliseconds(now - mark_));
    mark_ = now;
    if (static_cast<int>(step_ms_.size()) < steps_) return;
    std::cout << Json{{"step_ms", std::exchange(step_ms_, {})}}.dump() << std::endl;
    next_turn();
  }
  bool wants_to_stop() const override { return steps_ == 0; }

 private:
  void next_turn() {
    if (!(std::cin >> steps_)) steps_ = 0;
    mark_ = Clock::now();
  }
  int steps_ = 0;
  TimePoint mark_;
  std::vector<double> step_ms_;
};

// Trains on one process and thread.
void train_worker(const TrackingFlags& flags) {
  if (flags.tracked) track_cpu_allocations();
  at::set_num_threads(1);
  at::Context::setFlushDenormal(true);
  const Context context = init({.init_method = "alone"});
  torch::manual_seed(1);
  const nlohmann::json config = model_config(flags.model);
  const auto length = config.at("context").get<std::int64_t>(),
             vocabulary = config.at("vocabulary").get<std::int64_t>();
  const at::Tensor tokens = torch::randint(vocabulary, {4096, length + 1}, at::kLong);
  const auto data = std::make_shared<TensorDataset>(Tensors{tokens.narrow(1, 0, length)},
                                                    Tensors{tokens.narrow(1, 1, length)}, vocabulary);
  const auto strategy = all_strategies().make("one_device", context);
  Trainer trainer(*strategy, make_model(flags.model, config));
  trainer.compile(OptimizerOptions{.name = "adamw", .learning_rate = 1e-4});
  trainer.fit(data, {.steps = std::numeric_limits<std::int32_t>::max(),
                     .batch_size = flags.batch_size,
                     .callbacks = {std::make_shared<AnsweredTurns>()}});
}

std::unique_ptr<ChildProcess> start_worker(const TrackingFlags& flags, bool tracked) {
  std::vector<std::string> command = {own_program(), "memory-tracking", "--worker",           "--model",
                                      flags.model,   "--batch-size",    str(flags.batch_size)};
  if (tracked) command.emplace_back("--tracked");
  return std::make_unique<ChildProcess>(tracked ? "with" : "without", command,
                                        std::map<std::string, std::string>{}, ChildPlace{.processor = 0});
}

std::vector<double> take_turn(ChildProcess& child, int steps) {
  child.write_line(str(steps));
  return child.read_json(Deadline::after(kPatience)).at("step_ms").get<std::vector<double>>();
}

Json run_tracking(const TrackingFlags& flags, bool prints) {
  // Indexed by whether memory tracking is on.
  std::array<std::unique_ptr<ChildProcess>, 2> children;
  for (const bool tracked : {false, true}) {
    children[tracked] = start_worker(flags, tracked);
    children[tracked]->read_line(Deadline::after(kPatience));
    take_turn(*children[tracked], flags.warm_up);
  }
  std::array<std::vector<double>, 2> step_ms;
  std::vector<double> ratios;  // by round
  for (int round = 0; round < flags.rounds; ++round) {
    std::array<double, 2> of_round{};
    for (const bool first : {false, true}) {
      const bool tracked = first != (round % 2 == 0);
      const std::vector<double> times = take_turn(*children[tracked], flags.steps);
      of_round[tracked] = repeated(times).p50;
      step_ms[tracked].insert(step_ms[tracked].end(), times.begin(), times.end());
    }
    ratios.push_back(of_round[1] / of_round[0]);
  }
  Json rows = Json::array();
  for (const bool tracked : {false, true}) {
    const RepeatedTime time = repeated(step_ms[tracked]);
    rows.push_back({{"system", "rondo"},
                    {"tracked", tracked},
                    {"model", flags.model},
                    {"step_ms_p50", time.p50},
                    {"step_ms_min", time.min},
                    {"steps", step_ms[tracked].size()}});
  }
  const double of_medians = repeated(step_ms[1]).p50 / repeated(step_ms[0]).p50;
  rows.push_back(ratio_row({"step_ms_p50", "with", "without", of_medians, kGoal, false}));
  rows.push_back(ratio_row({"step_ms of a round", "with", "without", repeated(ratios).p50, kGoal, false}));
  if (prints) {
    print_table(rows, {{"tracked", 9, "tracked"},
                       {"median ms", 10, "step_ms_p50", 3},
                       {"minimum", 10, "step_ms_min", 3},
                       {"steps", 8, "steps"}});
  }
  return rows;
}

}  // namespace

Command add_memory_tracking(CLI::App& parent) {
  return add_benchmark<TrackingFlags>(
      parent,
      {"memory-tracking", "Overhead of memory tracking per training step",
       "Examples:\n  rondo bench-dev memory-tracking\n  rondo bench-dev memory-tracking --model gpt-tiny "
       "--steps 20 --rounds 30 --json tracking.json\n\nTwo processes on one core take turns; one of them "
       "tracks memory, as rondo train does."},
      [](CLI::App& app, TrackingFlags& flags) {
        app.add_option("--model", flags.model, "Model to train")
            ->check(CLI::IsMember({"gpt", "gpt-25m", "gpt-tiny"}));
        app.add_option("--batch-size", flags.batch_size, "Samples in a step")->check(between(1, 4096));
        app.add_option("--rounds", flags.rounds, "Turns of each process")->check(between(1, 10000));
        app.add_option("--steps", flags.steps, "Steps in a turn")->check(between(1, 10000));
        app.add_option("--warm-up", flags.warm_up, "Steps before the first turn")->check(between(1, 10000));
        app.add_flag("--worker", flags.is_worker, "Be one of the processes")->group("");
        app.add_flag("--tracked", flags.tracked, "The one that tracks its memory")->group("");
      },
      [](TrackingFlags& flags, bool prints) {
        if (!flags.is_worker) return run_tracking(flags, prints);
        train_worker(flags);
        return Json();
      });
}

}  // namespace rondo::bench
