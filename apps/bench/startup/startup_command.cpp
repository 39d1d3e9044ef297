// `rondo bench startup`: how long from the command until every rank has trained its first step.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/bench/commands.h"
#include "apps/bench/python.h"
#include "apps/bench/run_to_end.h"
#include "apps/bench/startup/worker.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/median.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/launch/scratch.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kGoalSeconds = 1.0;
constexpr const char* kStartupExamples =
    "Examples:\n"
    "  rondo bench startup\n"
    "  rondo bench startup --peers --runs 9 --json startup.json\n\n"
    "The model is a small MLP in data parallelism; the clock starts just before the launcher is started.";

// A way to start ranks; the report file is appended to the words.
struct Launcher {
  std::string system;
  std::vector<std::string> command;
  std::vector<double> seconds;  // one a run
};

// Seconds from the start of the command to the end of the last rank's first step.
double time_first_step(const Launcher& launcher, int ranks, const fs::path& report) {
  fs::remove(report);
  std::vector<std::string> words = launcher.command;
  words.push_back(report);
  const long long start = monotonic_ns();
  run_to_end(words);
  std::ifstream lines(report);
  std::vector<long long> ends;
  for (long long end = 0; lines >> end;) ends.push_back(end);
  if (static_cast<int>(ends.size()) != ranks) {
    throw Error(str(launcher.system, ": ", ends.size(), " of ", ranks, " ranks reported their first step"));
  }
  return static_cast<double>(*std::max_element(ends.begin(), ends.end()) - start) / 1e9;
}

std::vector<Launcher> make_launchers(int ranks, bool peers) {
  const fs::path programs = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<Launcher> launchers;
  launchers.push_back(
      {"rondo",
       {programs / "rondo", "run", "-n", str(ranks), "--", programs / "rondo-bench", "startup", "--worker"},
       {}});
  if (!peers) return launchers;
  if (const std::string why = why_no_pytorch(); !why.empty()) {
    std::cerr << "without torchrun: " << why << "\n";
    return launchers;
  }
  launchers.push_back({"pytorch",
                       {python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                        str(ranks), peer_script("first_step.py")},
                       {}});
  return launchers;
}

Json result_of(const std::vector<Launcher>& launchers, int ranks) {
  Json result = Json::array();
  for (const Launcher& launcher : launchers) {
    result.push_back(
        {{"system", launcher.system},
         {"ranks", ranks},
         {"first_step_s", median(launcher.seconds)},
         {"first_step_s_min", *std::min_element(launcher.seconds.begin(), launcher.seconds.end())},
         {"runs", launcher.seconds.size()}});
  }
  return result;
}

void print_startup(const Json& result) {
  std::cout << "first training step on " << result[0]["ranks"] << " ranks, seconds after the command\n"
            << "    system    median   minimum   runs\n"
            << std::fixed << std::setprecision(2);
  const double ours = result[0]["first_step_s"];
  for (const Json& row : result) {
    const double seconds = row["first_step_s"];
    std::cout << std::setw(10) << row["system"].get<std::string>() << std::setw(10) << seconds
              << std::setw(10) << row["first_step_s_min"].get<double>() << std::setw(7)
              << row["runs"].get<int>();
    if (row["system"] != "rondo") std::cout << "   rondo is " << seconds / ours << " x faster";
    std::cout << "\n";
  }
  std::cout << "goal: rondo <= " << kGoalSeconds << " s: " << (ours <= kGoalSeconds ? "met" : "missed")
            << "\n";
}

}  // namespace

Command add_startup(CLI::App& parent) {
  struct Flags {
    int ranks = 2;
    int runs = 5;
    bool peers = false;
    std::string json;
    std::string worker_report;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* app =
      parent.add_subcommand("startup", "Time from the command to the first training step, next to torchrun");
  app->footer(kStartupExamples);
  app->option_defaults()->always_capture_default();
  app->add_option("--ranks", flags->ranks, "Number of ranks")->check(rondo::between(1, 64));
  add_turns_flag(*app, "--runs", flags->runs, "Starts of each system, in turns");
  app->add_flag("--peers", flags->peers, "Start the same under torchrun too");
  add_json_flag(*app, flags->json);
  app->add_option("--worker", flags->worker_report, "Be one of the ranks")->group("");
  return {app, [flags] {
            if (!flags->worker_report.empty()) {
              train_first_step(flags->worker_report);
              return 0;
            }
            const auto folder = launch::ScratchDirectory::create();
            if (folder.path().empty()) throw Error("cannot make a folder in $TMPDIR or /tmp");
            std::vector<Launcher> launchers = make_launchers(flags->ranks, flags->peers);
            for (int run = 0; run < flags->runs; ++run) {
              for (Launcher& launcher : launchers) {
                launcher.seconds.push_back(
                    time_first_step(launcher, flags->ranks, fs::path(folder.path()) / "report"));
              }
            }
            const Json result = result_of(launchers, flags->ranks);
            if (flags->json != "-") print_startup(result);
            write_json(flags->json, result);
            return 0;
          }};
}

}  // namespace rondo::bench
