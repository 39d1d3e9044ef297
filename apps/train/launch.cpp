// The program `rondo-train`: parses the command line and starts the training.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "apps/common/libtorch_location.h"
#include "apps/common/matmul_setup.h"
#include "apps/train/run_folder.h"
#include "apps/train/stop_signals.h"
#include "apps/train/train_command_line.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/env/cluster.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/env/sources/slurm.h"
#include "rondo/format/run_directory.h"
#include "rondo/launch/job.h"
#include "rondo/launch/scratch.h"
#include "rondo/launch/stop_signals.h"
#include "rondo/parallel/declared_strategies_options.h"
#include "rondo/server/task.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

std::string worker_program() {
  std::string path = fs::read_symlink("/proc/self/exe").parent_path() / "rondo-train-worker";
  if (access(path.c_str(), X_OK) != 0) throw Error(str("cannot start ", path, ": ", errno_text(errno)));
  return path;
}

int option_or(const TrainFlags& flags, const char* name, int otherwise) {
  const auto found = flags.options.find(name);
  return found == flags.options.end() ? otherwise
                                      : static_cast<int>(parse_integer(found->second, str("--", name)));
}

// A launcher or scheduler has made this process one rank of several.
bool is_a_rank(const TrainFlags& flags) {
  const env::EnvironmentMap environment = env::process_environment();
  if (worker_of(declared_strategies(), flags.strategy) != ServedWorker::none)
    return env::read_cluster(environment).has_value();
  return env::is_one_of_several(environment);
}

int become(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  hold_stop_signals();  // signals stay blocked until the program's main()
  execv(program.c_str(), words.data());
  throw Error(str("cannot start ", program, ": ", errno_text(errno)));
}

// Collects the result for standard output in a file: the launcher would add "[rank 0]" to a rank's output
// lines.
class ResultFile {
 public:
  ResultFile() {
    if (directory_.path().empty())
      throw Error("--json -: cannot create a directory for the result in $TMPDIR or /tmp");
  }
  std::string path() const { return directory_.path() + "/result.json"; }
  void print() const {
    std::ifstream file(path());
    for (std::string line; std::getline(file, line);) std::cout << line << '\n';
    std::cout << std::flush;
  }

 private:
  launch::ScratchDirectory directory_ = launch::ScratchDirectory::create();
};

// Returns the run directory; empty if it must exist and does not.
fs::path place_for_measurements(const TrainFlags& flags) {
  std::error_code unreadable;
  if (flags.resume && !fs::is_directory(flags.run_dir, unreadable)) return {};
  return flags.run_dir;
}

launch::Binding binding_of(const std::string& name) {
  if (name == "core") return launch::Binding::core;
  return name == "numa" ? launch::Binding::numa : launch::Binding::none;
}

// From here on signals belong to the job: its exit code reports their effect.
int run_job_holding_signals(const TrainFlags& flags, launch::RunOptions& options) {
  // A rank that is bound to a core would only count that core.
  if (flags.counts_processes) options.command.push_back(str("--nproc-per-node=", flags.nproc_per_node));
  options.forwarded_signals = launch::default_forwarded_signals();
  options.forwarded_signals.merge(launch::stop_signals(env::process_environment()));
  launch::hold_signals(launch::expected_signals(options));
  return launch::run_job(options);
}

int run_printing_result(const TrainFlags& flags, launch::RunOptions options) {
  if (flags.json != "-") return run_job_holding_signals(flags, options);
  const ResultFile result;
  options.command.push_back("--json=" + result.path());
  const int exit_code = run_job_holding_signals(flags, options);
  result.print();
  return exit_code;
}

// Refuses several processes for a single-process strategy, before anything is started.
void refuse_several_processes(const TrainFlags& flags) {
  const std::vector<Declaration> strategies = declared_strategies();
  const Declaration* const chosen = find_declaration(strategies, strategy_name(flags, flags.nproc_per_node));
  if (chosen == nullptr || chosen->on_several_processes.empty()) return;
  throw UsageError(str("--strategy ", chosen->name, " trains on one process, but --nproc-per-node is ",
                       flags.nproc_per_node, "; ", chosen->on_several_processes));
}

// Workers and servers would have to connect first, so the model and the strategy are not built.
int say_served_dry_run(const TrainFlags& flags, int workers, int servers) {
  batch_size_per_replica(flags, workers);
  std::cout << "dry run: --strategy " << flags.strategy << " would start " << servers << " servers and "
            << workers << " workers on " << flags.data << "; nothing was started\n";
  return 0;
}

// Workers and servers run this program again; each finds its role in TF_CONFIG.
int start_served_training(const TrainFlags& flags, const std::vector<std::string>& arguments) {
  const bool grouped = worker_of(declared_strategies(), flags.strategy) == ServedWorker::group;
  if (flags.average_weights > 0) {
    throw UsageError(str("--ema-decay ", flags.average_weights, ": with --strategy ", flags.strategy,
                         " servers hold the weights of workers that do not step together; leave it out"));
  }
  if (flags.nproc_per_node != 1 && !grouped) {
    throw UsageError(str("--nproc-per-node ", flags.nproc_per_node,
                         " is for strategies without parameter servers; with --strategy ", flags.strategy,
                         " give --workers and --ps"));
  }
  launch::RunOptions options;
  options.servers = option_or(flags, "ps", 1);
  const int workers = grouped ? flags.nproc_per_node : option_or(flags, "workers", 1);
  if (const int groups = option_or(flags, "ps-groups", 2); grouped && workers % groups != 0)
    throw UsageError(str("--ps-groups ", groups, " does not divide --nproc-per-node ", workers));
  options.processes = workers + options.servers;
  if (flags.dry_run) return say_served_dry_run(flags, workers, options.servers);
  options.patience = parse_duration(flags.timeout, "--timeout");
  batch_size_per_replica(flags, workers);
  options.binding = binding_of(flags.bind_to);
  options.command = {fs::read_symlink("/proc/self/exe").string()};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  // All processes must see the same value.
  std::optional<NewRunDirectory> made;
  if (flags.run_dir.empty() && flags.resume_from.empty())
    options.command.push_back("--run-dir=" + made.emplace(flags.model).path().string());
  return run_printing_result(flags, options);
}

// Handles the signals of `list` too, and passes the list to ranks in the environment.
void handle_further_signals(const std::string& list) {
  if (list.empty()) return;
  const auto before = env::lookup(env::process_environment(), launch::kStopSignalsVariable);
  setenv(launch::kStopSignalsVariable, before ? str(*before, ",", list).c_str() : list.c_str(),
         /*overwrite=*/1);
  end_on_stop_signals();
}

// A job that was meant to have more processes would otherwise train for hours with one.
void say_that_tasks_are_idle(const TrainFlags& flags) {
  const auto tasks = env::tasks_without_srun(env::process_environment());
  if (!tasks || flags.nproc_per_node > 1) return;
  std::fprintf(stderr,
               "rondo train: training with one process, although Slurm allocated %d tasks (SLURM_NTASKS); "
               "start it with srun, or give --nproc-per-node for several processes on this host\n",
               *tasks);
}

// Becomes the worker program (this process is a rank already, or the only one), or starts --nproc-per-node of
// them and waits. `arguments` are the command line's, without the program. Returns the exit code. Throws
// UsageError, or Error when the worker program is missing.
int start_training(const TrainFlags& flags, const std::vector<std::string>& arguments) {
  handle_further_signals(flags.signals_to_handle);
  const bool evaluates = env::is_evaluator(env::process_environment());
  const bool served = worker_of(declared_strategies(), flags.strategy) != ServedWorker::none && !evaluates;
  if (served) {
    const env::EnvironmentMap environment = env::process_environment();
    const auto cluster = env::read_cluster(environment);
    if (cluster && cluster->is_server) {
      request_stop_on_signals();
      server::run_task(
          *cluster, environment, [] { return stop_requested(); }, parse_duration(flags.timeout, "--timeout"));
      return 0;
    }
  }
  const std::string program = worker_program();
  use_libtorch();
  // Forward and backward run on two threads with an OpenMP team each; a team that spins after its work takes
  // the cores from the other (6 times the processor time for a small model on two cores).
  setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  // For run.json: the workers' own arguments may have more.
  setenv(kCommandVariable, make_provenance("rondo train", arguments).command.c_str(), /*overwrite=*/1);
  const bool is_one_of_several = evaluates || is_a_rank(flags);
  // Ranks of another launcher would measure at the same time and disturb each other: they use a stored
  // measurement, or the value of --matmul.
  if (!is_one_of_several && !flags.dry_run) prepare_matmul(flags.matmul, place_for_measurements(flags));
  if (flags.max_restarts > 0 && (served || is_one_of_several)) {
    throw UsageError(str("--max-restarts ", flags.max_restarts,
                         served ? ": a job with parameter servers restarts servers by itself; leave it out"
                                : ": the launcher restarts the ranks; give it to rondo run"));
  }
  if (!flags.sample && !served) say_that_tasks_are_idle(flags);
  if (flags.sample || (flags.nproc_per_node == 1 && flags.max_restarts == 0 && !served) || is_one_of_several)
    return become(program, arguments);
  if (served) return start_served_training(flags, arguments);

  const Mesh mesh = mesh_of(flags, flags.nproc_per_node);
  const int replicas = mesh.empty() ? flags.nproc_per_node : replicas_of(mesh);
  batch_size_per_replica(flags, replicas);  // rejects invalid values before anything starts
  if (flags.nproc_per_node > 1) refuse_several_processes(flags);
  launch::RunOptions options;
  options.processes = flags.nproc_per_node;
  options.max_restarts = flags.max_restarts;
  options.binding = binding_of(flags.bind_to);
  options.command = {program};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  // All attempts must see the same value.
  std::optional<NewRunDirectory> made;
  if (flags.max_restarts > 0 && flags.run_dir.empty() && flags.resume_from.empty())
    options.command.push_back("--run-dir=" + made.emplace(flags.model).path().string());
  return run_printing_result(flags, std::move(options));
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  rondo::end_on_stop_signals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return rondo::TrainCommandLine(rondo::built_in_choices())
      .run(argc, argv,
           [&](const rondo::TrainFlags& flags) { return rondo::start_training(flags, arguments); });
}
