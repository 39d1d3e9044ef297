// `rondo bench strategies`: throughput, and loss against time, of strategies on up to eight workers whose
// accelerators are emulated, so that two cores can show it.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/bench/commands.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/launch/scratch.h"

extern char** environ;

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSamples = 16;          // of a worker's step
constexpr std::size_t kAverage = 20;  // steps whose mean loss counts

struct StrategiesFlags {
  double seconds = 4;
  double unit_ms = 3;
  double slow_by = 4;
  double learning_rate = 0.01;
  std::vector<int> workers = {1, 2, 4, 8};
  std::string json;
};

struct Case {
  std::string study;
  std::string name;  // for people
  std::string strategy;
  int workers = 1;
  int servers = 0;
  std::vector<std::string> options = {};
  double slow_by = 1;
  bool joint_steps = true;  // a step is on all workers' samples: the rate grows with them
};

std::vector<Case> cases_of(const StrategiesFlags& options) {
  std::vector<Case> cases;
  for (const int workers : options.workers) {
    cases.push_back({"scaling", str("ddp, ", workers), "ddp", workers});
    const int servers = workers >= 4 ? 2 : 1;
    cases.push_back({"scaling",
                     str("parameter_server, ", workers, "W", servers, "PS"),
                     "parameter_server",
                     workers,
                     servers,
                     {},
                     1,
                     false});
  }
  const int workers = std::min(4, options.workers.back());
  const auto slow = [&](const std::string& name, const std::string& strategy, int servers,
                        const std::vector<std::string>& told, bool joint) {
    cases.push_back({"slow worker", name, strategy, workers, servers, told, options.slow_by, joint});
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

void run_program(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = -1;
  if (const int error = posix_spawn(&child, words[0], nullptr, nullptr, words.data(), environ); error != 0)
    throw Error(str("cannot start ", command[0], ": ", errno_text(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) throw Error(str("a job of the benchmark failed: ", join(command, " ")));
}

// What each worker wrote, by number.
std::vector<Json> run_case(const Case& one, const StrategiesFlags& options) {
  const auto scratch = launch::ScratchDirectory::create();
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> command = {(self.parent_path() / "rondo").string(), "run"};
  if (one.servers > 0) {
    for (const std::string& word :
         {std::string("--ps"), str(one.servers), std::string("--workers"), str(one.workers)})
      command.push_back(word);
  } else {
    command.emplace_back("-n");
    command.push_back(str(one.workers));
  }
  const double rate = options.learning_rate * (one.joint_steps ? one.workers : 1);
  for (const std::string& word :
       {std::string("--"), self.string(), std::string("strategies-worker"), std::string("--strategy"),
        one.strategy, std::string("--seconds"), str(options.seconds), std::string("--unit-ms"),
        str(options.unit_ms), std::string("--slow-by"), str(one.slow_by), std::string("--lr"), str(rate),
        std::string("--results"), scratch.path()})
    command.push_back(word);
  for (const std::string& option : one.options) command.push_back("--option=" + option);
  run_program(command);
  std::vector<Json> workers;
  for (int number = 0; number < one.workers; ++number) {
    workers.push_back(read_json_file(str(scratch.path(), "/", number, ".json")));
  }
  return workers;
}

// {seconds, mean loss of the last steps} of worker 0.
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

double throughput(const std::vector<Json>& workers) {
  double samples_per_s = 0;
  for (const Json& worker : workers) {
    const Json& rows = worker["rows"];
    if (!rows.empty())
      samples_per_s += static_cast<double>(rows.size()) * kSamples / rows.back()[0].get<double>();
  }
  return samples_per_s;
}

Json first_below(const std::vector<std::pair<double, double>>& curve, double loss) {
  for (const auto& [time, value] : curve) {
    if (value <= loss) return time;
  }
  return nullptr;
}

int run_strategies(const StrategiesFlags& options) {
  Json rows = Json::array();
  double target = 0;  // what one worker reaches
  for (const Case& one : cases_of(options)) {
    const std::vector<Json> workers = run_case(one, options);
    const auto curve = curve_of(workers.front());
    if (curve.empty())
      throw Error(str(one.name, ": fewer than ", kAverage, " steps; give a longer --seconds"));
    if (rows.empty()) target = curve.back().second;
    double peak = 0;
    for (const Json& worker : workers) peak = std::max(peak, worker["peak_bytes"].get<double>());
    rows.push_back({{"study", one.study},
                    {"name", one.name},
                    {"workers", one.workers},
                    {"servers", one.servers},
                    {"samples_per_s", throughput(workers)},
                    {"seconds_to_target", first_below(curve, target)},
                    {"loss", curve.back().second},
                    {"largest_peak_bytes", peak}});
    if (options.json != "-") {
      const Json& row = rows.back();
      std::printf("%-12s %-32s %6.0f samples/s, loss %.3f, to %.3f in %s\n", one.study.c_str(),
                  one.name.c_str(), row["samples_per_s"].get<double>(), row["loss"].get<double>(), target,
                  row["seconds_to_target"].is_null()
                      ? "-"
                      : str(row["seconds_to_target"].get<double>(), " s").c_str());
      std::fflush(stdout);
    }
  }
  write_json(options.json, {{"emulated_accelerator", true},
                            {"unit_ms", options.unit_ms},
                            {"slow_by", options.slow_by},
                            {"seconds", options.seconds},
                            {"target_loss", target},
                            {"rows", rows}});
  return 0;
}

}  // namespace

Command add_strategies(CLI::App& app) {
  const auto options = std::make_shared<StrategiesFlags>();
  CLI::App* command = app.add_subcommand(
      "strategies",
      "Strategies on up to 8 workers with emulated accelerators: throughput, loss against time");
  command->add_option("--seconds", options->seconds, "of each training")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command
      ->add_option("--unit-ms", options->unit_ms,
                   "forward, input gradient and weight gradient of a unit take each")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command->add_option("--slow-by", options->slow_by, "times longer a unit of the slow worker takes")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command
      ->add_option("--lr", options->learning_rate,
                   "learning rate of one worker; joint steps take it times workers")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command
      ->add_option("--workers", options->workers,
                   "numbers of workers, joined by commas; the first is compared with")
      ->delimiter(',')
      ->check(rondo::positive_number());
  add_json_flag(*command, options->json);
  return {command, [options] { return run_strategies(*options); }};
}

}  // namespace rondo::bench
