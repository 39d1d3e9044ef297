// `rondo bench-dev strategies`: throughput, and loss over time, of strategies on up to eight workers.
// Accelerators are emulated, so that two cores suffice.
#include <cstdio>
#include <filesystem>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/processes.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

constexpr int kSamples = 16;          // per worker and step
constexpr std::size_t kAverage = 20;  // number of last steps that the loss is averaged over

struct StrategiesFlags {
  double seconds = 4;
  double unit_ms = 3;
  double slow_by = 4;
  double learning_rate = 0.01;
  std::vector<int> workers = {1, 2, 4, 8};
};

struct StudyCase {
  std::string study;
  std::string name;  // display name
  std::string strategy;
  int workers = 1;
  int servers = 0;
  std::vector<std::string> options = {};
  double slow_by = 1;
  bool joint_steps = true;  // a step uses the samples of all workers, so the rate grows with their number
};

std::vector<StudyCase> cases_of(const StrategiesFlags& flags) {
  std::vector<StudyCase> cases;
  for (const int workers : flags.workers) {
    cases.push_back({"scaling", str("ddp, ", workers), "ddp", workers});
    const int servers = workers >= 4 ? 2 : 1;
    cases.push_back({.study = "scaling",
                     .name = str("parameter_server, ", workers, "W", servers, "PS"),
                     .strategy = "parameter_server",
                     .workers = workers,
                     .servers = servers,
                     .joint_steps = false});
  }
  const int workers = std::min(4, flags.workers.back());
  const auto slow = [&](const std::string& name, const std::string& strategy, int servers,
                        const std::vector<std::string>& options, bool joint) {
    cases.push_back({"slow worker", name, strategy, workers, servers, options, flags.slow_by, joint});
  };
  slow("ddp", "ddp", 0, {}, true);
  slow("servers, sync", "parameter_server", 1, {"ps-mode=sync"}, true);
  slow("servers, sync, 1 backup worker", "parameter_server", 1, {"ps-mode=sync", "ps-backup-workers=1"},
       true);
  slow("servers, async", "parameter_server", 1, {}, false);
  slow("servers, ssp, staleness 8", "parameter_server", 1, {"ps-mode=ssp", "ps-staleness=8"}, false);
  slow("local SGD, period 8", "local_sgd", 0, {"sync-period=8"}, true);
  slow("DiLoCo, period 8", "local_sgd", 0, {"sync-period=8", "outer-optimizer=diloco"}, true);
  if (workers >= 4) slow("grouped, 2 groups", "grouped", 1, {"ps-groups=2"}, false);
  return cases;
}

// Returns each worker's output, by number.
std::vector<Json> run_study(const StudyCase& study, const StrategiesFlags& flags) {
  const auto scratch = make_scratch();
  std::vector<std::string> command = {program_beside("rondo"), "run"};
  if (study.servers > 0) {
    command.insert(command.end(), {"--ps", str(study.servers), "--workers", str(study.workers)});
  } else {
    command.insert(command.end(), {"-n", str(study.workers)});
  }
  const double rate = flags.learning_rate * (study.joint_steps ? study.workers : 1);
  command.insert(command.end(),
                 {"--", own_program(), "strategies-worker", "--strategy", study.strategy, "--seconds",
                  str(flags.seconds), "--unit-ms", str(flags.unit_ms), "--slow-by", str(study.slow_by),
                  "--lr", str(rate), "--results", scratch.path()});
  for (const std::string& option : study.options) command.push_back("--option=" + option);
  run_to_end(command);
  std::vector<Json> workers;
  for (int number = 0; number < study.workers; ++number)
    workers.push_back(read_json_file(str(scratch.path(), "/", number, ".json")));
  return workers;
}

// Returns {seconds, mean loss of the last steps} of a worker.
std::vector<std::pair<double, double>> curve_of(const Json& worker) {
  std::vector<std::pair<double, double>> curve;
  const Json& rows = worker["rows"];
  double sum = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    sum += rows[row][1].get<double>();
    if (row >= kAverage) sum -= rows[row - kAverage][1].get<double>();
    if (row + 1 >= kAverage) curve.emplace_back(rows[row][0].get<double>(), sum / kAverage);
  }
  return curve;
}

Json first_below(const std::vector<std::pair<double, double>>& curve, double loss) {
  for (const auto& [time, value] : curve) {
    if (value <= loss) return time;
  }
  return nullptr;
}

Json run_strategies(const StrategiesFlags& flags, bool prints) {
  Json rows = Json::array();
  double target = 0;  // loss reached by one worker
  for (const StudyCase& study : cases_of(flags)) {
    const std::vector<Json> workers = run_study(study, flags);
    const auto curve = curve_of(workers.front());
    if (curve.empty())
      throw Error(str(study.name, ": fewer than ", kAverage, " steps; give a longer --seconds"));
    if (rows.empty()) target = curve.back().second;
    double peak = 0, samples_per_s = 0;
    for (const Json& worker : workers) {
      peak = std::max(peak, worker["peak_bytes"].get<double>());
      const Json& steps = worker["rows"];
      if (!steps.empty())
        samples_per_s += static_cast<double>(steps.size()) * kSamples / steps.back()[0].get<double>();
    }
    rows.push_back({{"study", study.study},
                    {"name", study.name},
                    {"workers", study.workers},
                    {"servers", study.servers},
                    {"samples_per_s", samples_per_s},
                    {"seconds_to_target", first_below(curve, target)},
                    {"loss", curve.back().second},
                    {"largest_peak_bytes", peak}});
    if (prints) std::fprintf(stderr, "%s: %s done\n", study.study.c_str(), study.name.c_str());
  }
  if (prints) {
    print_table(rows, {{"study", -12, "study"},
                       {"name", -32, "name"},
                       {"samples/s", 10, "samples_per_s"},
                       {"loss", 8, "loss", 3},
                       {str("s to ", target), 14, "seconds_to_target", 2}});
  }
  return {{"emulated_accelerator", true}, {"unit_ms", flags.unit_ms}, {"slow_by", flags.slow_by},
          {"seconds", flags.seconds},     {"target_loss", target},    {"rows", rows}};
}

}  // namespace

Command add_strategies(CLI::App& parent) {
  return add_benchmark<StrategiesFlags>(
      parent,
      {"strategies",
       "Strategies on up to 8 workers with emulated accelerators: throughput, loss against time",
       "Examples:\n  rondo bench-dev strategies --workers 1,2"},
      [](CLI::App& app, StrategiesFlags& flags) {
        app.add_option("--seconds", flags.seconds, "duration of each training, in seconds")
            ->check(positive_number());
        app.add_option("--unit-ms", flags.unit_ms,
                       "emulated time of a unit's forward, input-gradient and weight-gradient pass")
            ->check(positive_number());
        app.add_option("--slow-by", flags.slow_by, "slowdown factor of the slow worker")
            ->check(positive_number());
        app.add_option("--lr", flags.learning_rate,
                       "learning rate of one worker; synchronous steps multiply it by the number of workers")
            ->check(positive_number());
        app.add_option("--workers", flags.workers,
                       "comma-separated numbers of workers; the first is the baseline")
            ->delimiter(',')
            ->check(positive_number());
      },
      run_strategies);
}

}  // namespace rondo::bench
