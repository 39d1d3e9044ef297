// `rondo bench memory-tracking`: a training step with tracked memory, next to one without.
#include <array>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/bench/child_process.h"
#include "apps/bench/commands.h"
#include "apps/bench/memory_tracking/worker.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/median.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGoal = 1.01;
constexpr std::array kNames = {"without", "with"};
constexpr const char* kMemoryTrackingExamples =
    "Examples:\n"
    "  rondo bench memory-tracking\n"
    "  rondo bench memory-tracking --model gpt-tiny --steps 20 --rounds 30 --json tracking.json\n\n"
    "Two processes on one processor take turns; one tracks memory, as rondo train does.";

struct Flags {
  MemoryTrackingWorker training{.model = "gpt-25m"};
  int rounds = 10;
  int steps = 3;
  int warm_up = 3;
  std::string json;
  bool is_worker = false;
};

// Indexed by whether memory is tracked.
struct Samples {
  std::array<std::vector<double>, 2> step_ms;
  std::vector<double> ratios;  // of each round
};

std::unique_ptr<ChildProcess> start(const Flags& flags, bool tracked) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> command = {self,
                                      "memory-tracking",
                                      "--worker",
                                      "--model",
                                      flags.training.model,
                                      "--batch-size",
                                      str(flags.training.batch_size)};
  if (tracked) command.emplace_back("--tracked");
  return std::make_unique<ChildProcess>(kNames[tracked], command, std::map<std::string, std::string>{},
                                        ChildPlace{.processor = 0});
}

std::vector<double> take_turn(ChildProcess& child, int steps) {
  child.write_line(str(steps));
  const std::string answer = child.read_line(Deadline::after(std::chrono::minutes(2)));
  return parse_json_strict(answer, "the answer of a worker").at("step_ms").get<std::vector<double>>();
}

Samples measure(const Flags& flags) {
  std::array<std::unique_ptr<ChildProcess>, 2> children;
  for (const bool tracked : {false, true}) {
    children[tracked] = start(flags, tracked);
    children[tracked]->read_line(Deadline::after(std::chrono::minutes(2)));
    take_turn(*children[tracked], flags.warm_up);
  }
  Samples samples;
  for (int round = 0; round < flags.rounds; ++round) {
    std::array<double, 2> of_round{};
    for (const bool first : {false, true}) {
      const bool tracked = first != (round % 2 == 0);
      const std::vector<double> times = take_turn(*children[tracked], flags.steps);
      of_round[tracked] = median(times);
      samples.step_ms[tracked].insert(samples.step_ms[tracked].end(), times.begin(), times.end());
    }
    samples.ratios.push_back(of_round[1] / of_round[0]);
  }
  return samples;
}

Json result_of(const Flags& flags, const Samples& samples) {
  Json result = Json::array();
  for (const bool tracked : {false, true}) {
    const std::vector<double>& times = samples.step_ms[tracked];
    result.push_back({{"system", "rondo"},
                      {"tracked", tracked},
                      {"model", flags.training.model},
                      {"step_ms_p50", median(times)},
                      {"step_ms_min", *std::min_element(times.begin(), times.end())},
                      {"steps", times.size()}});
  }
  const auto ratio = [&](const char* name, double value) {
    result.push_back({{"ratio", name}, {"of", "with"}, {"to", "without"}, {"value", value}, {"goal", kGoal}});
  };
  ratio("step_ms_p50", median(samples.step_ms[1]) / median(samples.step_ms[0]));
  ratio("step_ms of a round", median(samples.ratios));
  return result;
}

void print_tracking(const Json& result) {
  std::cout << "a training step of " << result[0]["model"].get<std::string>()
            << ", ms\n  tracked    median   minimum   steps\n"
            << std::fixed << std::setprecision(3);
  for (const bool tracked : {false, true}) {
    const Json& row = result[tracked];
    std::cout << std::setw(9) << kNames[tracked] << std::setw(10) << row["step_ms_p50"].get<double>()
              << std::setw(10) << row["step_ms_min"].get<double>() << std::setw(8)
              << row["steps"].get<std::size_t>() << "\n";
  }
  std::cout << std::setprecision(4);
  for (std::size_t i = 2; i < result.size(); ++i) {
    std::cout << result[i]["ratio"].get<std::string>()
              << ", with to without: " << result[i]["value"].get<double>() << "\n";
  }
  std::cout << "goal: <= " << kGoal << ": "
            << (result.back()["value"].get<double>() <= kGoal ? "met" : "missed") << "\n";
}

}  // namespace

Command add_memory_tracking(CLI::App& parent) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* app = parent.add_subcommand("memory-tracking", "What tracked memory costs a training step");
  app->footer(kMemoryTrackingExamples);
  app->option_defaults()->always_capture_default();
  app->add_option("--model", flags->training.model, "What to train")
      ->check(CLI::IsMember({"gpt", "gpt-25m", "gpt-tiny"}));
  app->add_option("--batch-size", flags->training.batch_size, "Samples in a step")
      ->check(rondo::between(1, 4096));
  app->add_option("--rounds", flags->rounds, "Turns of each process")->check(rondo::between(1, 10000));
  app->add_option("--steps", flags->steps, "Steps in a turn")->check(rondo::between(1, 10000));
  app->add_option("--warm-up", flags->warm_up, "Steps before the first turn")
      ->check(rondo::between(1, 10000));
  add_json_flag(*app, flags->json);
  app->add_flag("--worker", flags->is_worker, "Be one of the processes")->group("");
  app->add_flag("--tracked", flags->training.tracked, "The one that tracks its memory")->group("");
  return {app, [flags] {
            if (flags->is_worker) {
              train_for_memory_tracking(flags->training);
              return 0;
            }
            const Json result = result_of(*flags, measure(*flags));
            if (flags->json != "-") print_tracking(result);
            write_json(flags->json, result);
            return 0;
          }};
}

}  // namespace rondo::bench
