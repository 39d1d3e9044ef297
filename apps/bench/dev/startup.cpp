// `rondo bench-dev startup`: from the command to the end of every rank's first training step.
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/processes.h"
#include "rondo/backend/context.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"
#include "rondo/models/mlp.h"
#include "rondo/parallel/ddp/ddp.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kGoalSeconds = 1.0;

struct StartupFlags {
  int ranks = 2;
  int runs = 5;
  bool peers = false;
  std::string worker_report;
};

// Trains an MLP for one step in data parallelism, as a rank of the process's job, and appends a line with the
// monotonic clock's nanoseconds to the file `report`.
void train_first_step(const std::string& report) {
  const Context context = init();
  torch::manual_seed(1);
  Mlp model;
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  DistributedDataParallel ddp(*model, context.world());
  const at::Tensor input = torch::randn({32, 784});
  const at::Tensor target = torch::randint(10, {32}, at::kLong);
  optimizer.zero_grad();
  torch::nn::functional::cross_entropy(ddp.forward(model, input), target).backward();
  optimizer.step();
  // A single write per line, so that ranks' lines do not mix.
  OutputFile(report, OutputFile::Mode::append).write(str(monotonic_ns(), "\n"));
}

// A way to start ranks; the report file's path is appended to the command.
struct Launcher {
  std::string system;
  std::vector<std::string> command;
  std::vector<double> seconds = {};  // one per run
};

double time_first_step(const Launcher& launcher, int ranks, const fs::path& report) {
  fs::remove(report);
  std::vector<std::string> command = launcher.command;
  command.push_back(report);
  const long long start = monotonic_ns();
  run_to_end(command);
  std::ifstream lines(report);
  std::vector<long long> ends;
  for (long long end = 0; lines >> end;) ends.push_back(end);
  if (static_cast<int>(ends.size()) != ranks)
    throw Error(str(launcher.system, ": ", ends.size(), " of ", ranks, " ranks reported their first step"));
  return static_cast<double>(*std::max_element(ends.begin(), ends.end()) - start) / 1e9;
}

Json run_startup(const StartupFlags& flags, bool prints) {
  if (!flags.worker_report.empty()) {
    train_first_step(flags.worker_report);
    return {};
  }
  std::vector<Launcher> launchers = {
      {"rondo",
       {program_beside("rondo"), "run", "-n", str(flags.ranks), "--", own_program(), "startup", "--worker"}}};
  if (peers_take_part(flags.peers)) {
    launchers.push_back({"pytorch",
                         {python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                          str(flags.ranks), peer_script("first_step.py")}});
  }
  const auto folder = make_scratch();
  for (int run = 0; run < flags.runs; ++run) {
    for (Launcher& launcher : launchers) {
      launcher.seconds.push_back(time_first_step(launcher, flags.ranks, fs::path(folder.path()) / "report"));
    }
  }
  Json rows = Json::array();
  for (const Launcher& launcher : launchers) {
    const RepeatedTime time = repeated(launcher.seconds);
    rows.push_back({{"system", launcher.system},
                    {"ranks", flags.ranks},
                    {"first_step_s", time.p50},
                    {"first_step_s_min", time.min},
                    {"runs", launcher.seconds.size()}});
  }
  if (!prints) return rows;
  print_table(rows, {{"seconds", -10, "system"},
                     {"ranks", 8, "ranks"},
                     {"median", 10, "first_step_s", 2},
                     {"minimum", 10, "first_step_s_min", 2},
                     {"runs", 8, "runs"}});
  const double ours = rows[0]["first_step_s"];
  Json ratios =
      Json::array({ratio_row({"seconds to the first step", "rondo", "1 s", ours, kGoalSeconds, false})});
  if (rows.size() > 1) {
    ratios.push_back(
        ratio_row({"times faster", "pytorch", "rondo", rows[1]["first_step_s"].get<double>() / ours}));
  }
  print_ratios(ratios, 26);
  return rows;
}

}  // namespace

Command add_startup(CLI::App& parent) {
  return add_benchmark<StartupFlags>(
      parent,
      {"startup", "Time from the command to the first training step, compared with torchrun",
       "Examples:\n  rondo bench-dev startup\n  rondo bench-dev startup --peers --runs 9 --json "
       "startup.json\n\nThe model is a small data-parallel MLP; the clock starts just before the launcher."},
      [](CLI::App& app, StartupFlags& flags) {
        app.add_option("--ranks", flags.ranks, "Number of ranks")->check(between(1, 64));
        add_turns_flag(app, "--runs", flags.runs, "Starts of each system, in turns");
        app.add_flag("--peers", flags.peers, "Measure the same program under torchrun too");
        app.add_option("--worker", flags.worker_report, "Be one of the ranks")->group("");
      },
      run_startup);
}

}  // namespace rondo::bench
