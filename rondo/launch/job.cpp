#include "rondo/launch/job.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/terminal.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/cluster.h"
#include "rondo/env/environment.h"
#include "rondo/env/launcher_files.h"
#include "rondo/launch/descriptor.h"
#include "rondo/launch/end_notice.h"
#include "rondo/launch/failure.h"
#include "rondo/launch/guardian.h"
#include "rondo/launch/host_resources.h"
#include "rondo/launch/job_files.h"
#include "rondo/launch/network.h"
#include "rondo/launch/scratch.h"
#include "rondo/launch/stop_signals.h"
#include "rondo/launch/supervisor.h"
#include "rondo/launch/worker_environment.h"

namespace rondo::launch {
namespace {

constexpr const char* kEvaluatorAlone =
    R"({"cluster":{"evaluator":["127.0.0.1:0"]},"task":{"type":"evaluator","index":0}})";

void check_hosts(const RunOptions& options) {
  const std::vector<int>& hosts = options.processes_of_hosts;
  if (hosts.size() < 2) return;
  if (options.node_rank < 0 || static_cast<std::size_t>(options.node_rank) >= hosts.size() ||
      hosts[static_cast<std::size_t>(options.node_rank)] != options.processes) {
    throw UsageError(str("host number ", options.node_rank, " with ", options.processes,
                         " processes does not fit the job's hosts, which have ", join(hosts, ", "),
                         " processes"));
  }
  if (!options.master_port)
    throw UsageError("a job of several hosts needs a master port that all of them know");
}

int workers_of(const RunOptions& options) {
  return options.processes - options.servers - (options.evaluator ? 1 : 0);
}

bool has_roles(const RunOptions& options) { return options.servers > 0 || options.coordinated; }

// Returns the number of processes with a rank: without roles, the evaluator has none. (With roles, TF_CONFIG
// identifies all processes.)
int ranks_of(const RunOptions& options) {
  return has_roles(options) ? options.processes : workers_of(options);
}

void check(const RunOptions& options) {
  if (options.command.empty()) throw UsageError("no program was given");
  if (options.processes < 1)
    throw UsageError(str("the number of processes must be at least 1, not ", options.processes));
  if (options.servers < 0 || (options.servers > 0 && workers_of(options) < 1)) {
    throw UsageError(str(options.servers, " parameter servers among ", options.processes,
                         " processes leave no worker; give --workers 1 or more"));
  }
  if (options.evaluator && options.processes_of_hosts.size() > 1)
    throw UsageError(
        "--evaluator works on one host only; on several hosts, start another process whose TF_CONFIG has the "
        "task evaluator");
  if (has_roles(options) && options.processes_of_hosts.size() > 1)
    throw UsageError("roles on several hosts need TF_CONFIG on each host, not --nnodes");
  if (options.max_restarts < 0)
    throw UsageError(str("--max-restarts ", options.max_restarts, " is negative"));
  if (options.restart_count < 0 || options.restart_count > options.max_restarts) {
    throw UsageError(str("--restart-count ", options.restart_count, " is not between 0 and --max-restarts ",
                         options.max_restarts));
  }
  if (options.master_port && (*options.master_port < 1 || *options.master_port > 65535)) {
    throw UsageError(str("--master-port ", *options.master_port, " is not in 1-65535"));
  }
  rlimit files{};
  // Per worker: two pipes, a pidfd and two log files.
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 &&
      files.rlim_cur < 5UL * static_cast<unsigned>(options.processes) + 32) {
    throw UsageError(str(options.processes, " processes need more open files than the limit of ",
                         files.rlim_cur, " allows; raise it with 'ulimit -n'"));
  }
  check_hosts(options);
  // Only rank 0's host can check its port.
  if (options.master_port && options.node_rank == 0)
    require_free_port(options.master_addr, *options.master_port);
}

// Returns the width in columns of the terminal that both output streams are connected to. Empty if they are
// not a terminal with escape sequences.
std::optional<int> terminal_width() {
  if (!is_terminal_with_escapes(STDOUT_FILENO) || !is_terminal_with_escapes(STDERR_FILENO))
    return std::nullopt;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 30) return std::nullopt;
  return size.ws_col;
}

// Returns the signals that stop the job, without those that this program ignores (nohup).
std::set<int> stopping_signals(const RunOptions& options) {
  return not_ignored(options.forwarded_signals.empty() ? default_forwarded_signals()
                                                       : options.forwarded_signals);
}

// Returns those of `signals` that workers do not handle by default.
std::set<int> further_signals(std::set<int> signals) {
  for (const int signal : default_forwarded_signals()) signals.erase(signal);
  return signals;
}

// Returns the terminal size that a worker sees for `descriptor`, reduced by `prefix`; empty if the launcher
// has no terminal there.
std::optional<TerminalSize> terminal_behind(int descriptor, const std::string& prefix) {
  if (isatty(descriptor) != 1) return std::nullopt;
  TerminalSize size = terminal_size(descriptor);
  size.columns = std::max(1, size.columns - static_cast<int>(prefix.size()));
  return size;
}

// Extra time before the launcher kills a suspended worker. Ranks give up at their deadline plus at most this
// margin, and their errors are more precise than the launcher's.
constexpr Duration kPatienceMargin = std::chrono::seconds(5);

// Longest time that a launcher spends on notifying other hosts. Ranks of other hosts may start later than its
// own by this much.
constexpr Duration kTimeToTell = std::chrono::seconds(3);

// A job in the guardian process.
class Job {
 public:
  Job(const RunOptions& options, std::string log_directory, std::string scratch, std::string memory,
      int lifeline)
      : options_(options),
        log_directory_(std::move(log_directory)),
        scratch_(std::move(scratch)),
        memory_(std::move(memory)),
        lifeline_(lifeline) {
    const std::vector<int>& hosts = options.processes_of_hosts;
    first_rank_ = std::accumulate(hosts.begin(), hosts.begin() + (hosts.empty() ? 0 : options.node_rank), 0);
    world_size_ = hosts.empty() ? ranks_of(options) : std::accumulate(hosts.begin(), hosts.end(), 0);
    bound_cpus_ = bind_workers(options.binding == Binding::none ? CpuLayout{} : cpu_layout(), options.binding,
                               options.processes);
  }

  int run() {
    // Differs from the launcher's name, so that one `pkill -9 -f "rondo run"` does not kill both processes.
    set_process_title("job-guardian");
    for (int attempt = options_.restart_count;; ++attempt) {
      const auto store = SharedStore::create();
      if (has_roles(options_)) server_job_.emplace(workers_of(options_), options_.servers);
      if (has_roles(options_) || options_.evaluator) ended_workers_.emplace(workers_of(options_));
      const int port = options_.master_port ? *options_.master_port : find_free_port();
      std::vector<WorkerSpec> specs;
      for (int rank = 0; rank < options_.processes; ++rank)
        specs.push_back(spec(rank, attempt, port, *store));
      const TimePoint started = Clock::now();
      const AttemptEnd end = supervise(specs, supervisor_options(*store));
      const auto root = root_cause(end, specs);
      const int code = job_exit_code(end, root);
      if (end.abandoned) {  // no other process is left to remove them
        std::error_code ignored;
        for (const std::string& directory : {scratch_, memory_})
          std::filesystem::remove_all(directory, ignored);
      }
      if (code == 0 && end.output_error != 0) {
        std::fprintf(stderr, "rondo run: cannot write standard output: %s\n",
                     errno_text(end.output_error).c_str());
        return static_cast<int>(ExitCode::failed);
      }
      if (code == 0 || end.abandoned) return code;
      report(end, specs, root, started);
      const bool may_restart =
          attempt < options_.max_restarts && end.signal == 0 && !(root && end.workers[*root]->end->preempted);
      if (!may_restart) {
        tell_other_hosts(end, specs, root, attempt, *store, started);
        return code;
      }
      std::fprintf(stderr, "rondo run: starting all %d workers again (restart %d of %d)\n",
                   options_.processes, attempt + 1, options_.max_restarts);
    }
  }

 private:
  // Returns the time that ranks wait for another rank: the value that they reported, or the join timeout
  // before they report one.
  Duration patience_of_others(SharedStore& store) const {
    const auto told = store.try_get(kPatienceKey);
    const Duration patience =
        told ? std::chrono::milliseconds(parse_integer(*told, kPatienceKey))
             : options_.patience.value_or(options_.join_timeout.value_or(kDefaultJoinTimeout));
    return bounded_duration(patience) + kPatienceMargin;
  }

  // Returns whether all ranks of this host have joined. False if the program does not call rondo::init.
  bool have_joined(SharedStore& store) const {
    for (int rank = 0; rank < options_.processes; ++rank) {
      if (store.try_get(joining_key(first_rank_ + rank)) != "0") return false;
    }
    return true;
  }

  // Sends the reason for the end of the job to other hosts, if their ranks may be waiting for ranks of this
  // host to join.
  void tell_other_hosts(const AttemptEnd& end, const std::vector<WorkerSpec>& specs,
                        const std::optional<std::size_t>& root, int attempt, SharedStore& store,
                        TimePoint started) const {
    if (options_.processes_of_hosts.size() < 2 || have_joined(store)) return;
    if (Clock::now() - started > patience_of_others(store)) return;
    // Rank 0 may not have forwarded another host's notice to all hosts yet.
    const auto told = store.try_get(kEndNoticeKey);
    if (told && options_.node_rank > 0) return;
    const std::string text = told                      ? *told
                             : root && end.signal == 0 ? failure_in_a_line(end, specs, *root)
                                                       : str("the launcher on host ", host_name(),
                                                             " was stopped by ", signal_name(end.signal));
    const std::string interface = !options_.interface.empty()
                                      ? options_.interface
                                      : env::lookup(base_environment_, "GLOO_SOCKET_IFNAME").value_or("");
    sigset_t stopping;
    sigemptyset(&stopping);
    for (const int signal : stopping_signals(options_)) sigaddset(&stopping, signal);
    const Descriptor signals(signalfd(-1, &stopping, SFD_CLOEXEC | SFD_NONBLOCK));
    // A second signal interrupts the notification.
    const NoticeLimits limits{Deadline::after(kTimeToTell), {signals.number(), lifeline_}};
    if (options_.node_rank > 0) {
      notify_store(options_.master_addr, *options_.master_port, end_key(attempt), text, limits);
    } else {
      serve_notice(options_.master_addr, *options_.master_port, interface, text,
                   world_size_ - options_.processes, limits);
    }
  }

  SupervisorOptions supervisor_options(SharedStore& store) const {
    std::function<Duration()> patience;
    // On one host, ranks that give up waiting for a suspended rank end the job themselves.
    if (options_.processes_of_hosts.size() > 1 || has_roles(options_))
      patience = [this, &store] { return patience_of_others(store); };
    return {.forwarded_signals = stopping_signals(options_),
            .passed_signals = not_ignored(passed_on_signals(base_environment_)),
            .grace = options_.grace,
            .signal_grace = options_.signal_grace,
            .lifeline = lifeline_,
            .patience_of_others = std::move(patience),
            .on_end = [this](int rank) {
              if (ended_workers_) ended_workers_->note(rank);
            }};
  }

  std::string log_path(int attempt, int rank, const char* file) const {
    const std::string directory = str(log_directory_, "/attempt_", attempt, "/", rank);
    std::filesystem::create_directories(directory);
    return directory + "/" + file;
  }

  StreamSpec stream(bool redirected, bool teed, int rank, int attempt, const char* file) const {
    StreamSpec stream;
    stream.route = redirected && !teed ? StreamSpec::Route::file : StreamSpec::Route::pipe;
    stream.shown = !options_.shown_ranks || options_.shown_ranks->contains(rank);
    if (redirected || teed) stream.log_path = log_path(attempt, rank, file);
    return stream;
  }

  WorkerSpec spec(int rank, int attempt, int port, const SharedStore& store) const {
    WorkerSpec spec;
    spec.rank = rank;
    spec.first_rank = first_rank_;
    spec.command = options_.command;
    if (const auto wrapper = options_.wrappers.find(rank); wrapper != options_.wrappers.end()) {
      spec.command.insert(spec.command.begin(), wrapper->second.begin(), wrapper->second.end());
    }
    spec.cpus = bound_cpus_[static_cast<std::size_t>(rank)];
    spec.gets_stdin = spec.world_rank() == 0;
    const Streams redirect = options_.redirects.of(rank);
    const Streams tee = options_.tee.of(rank);
    spec.out = stream(redirect.out, tee.out, rank, attempt, "stdout.log");
    spec.err = stream(redirect.err, tee.err, rank, attempt, "stderr.log");
    if (!log_directory_.empty()) {
      spec.error_file = log_path(attempt, rank, "error.json");
      spec.preemption_file = log_path(attempt, rank, "preempted");
    } else if (!scratch_.empty()) {
      spec.error_file = str(scratch_, "/error_", attempt, "_", rank, ".json");
      spec.preemption_file = str(scratch_, "/preempted_", attempt, "_", rank);
    }
    const bool is_apart = rank >= ranks_of(options_);  // an evaluator without a rank
    WorkerPlace place;
    place.rank = spec.world_rank();
    place.world_size = world_size_;
    place.local_rank = rank;
    place.local_world_size = ranks_of(options_);
    place.node_rank = options_.node_rank;
    place.num_nodes = std::max<int>(1, static_cast<int>(options_.processes_of_hosts.size()));
    place.interface = options_.interface;
    place.join_timeout = options_.join_timeout;
    place.role = options_.role;
    place.master_addr = options_.master_addr;
    place.master_port = port;
    place.run_id = options_.run_id;
    place.restart_count = attempt;
    place.max_restarts = options_.max_restarts;
    place.job_memory = memory_;
    place.error_file = spec.error_file;
    place.preemption_file = spec.preemption_file;
    place.store_descriptor = is_apart ? -1 : store.descriptor();
    place.omp_threads = options_.omp_threads;
    place.stop_signals = signal_list(further_signals(options_.forwarded_signals));
    // A log file gets plain lines.
    const bool on_console = spec.out.route == StreamSpec::Route::pipe && spec.err.route == spec.out.route &&
                            spec.out.log_path.empty() && spec.err.log_path.empty();
    const std::string prefix = str("[rank ", spec.world_rank(), "] ");
    if (terminal_width_ && on_console && spec.out.shown)
      place.terminal_width = *terminal_width_ - static_cast<int>(prefix.size());
    // Rank 0 gets a terminal if the launcher has one, for programs that query or use it.
    if (spec.world_rank() == 0 && spec.out.shown) {
      if (spec.out.log_path.empty()) spec.out.terminal = terminal_behind(STDOUT_FILENO, prefix);
      if (spec.err.log_path.empty()) spec.err.terminal = terminal_behind(STDERR_FILENO, prefix);
    }
    if (server_job_ || is_apart) describe_task(rank, spec, place);
    spec.environment = worker_environment(base_environment_, place);
    if (server_job_) server_job_->describe(rank, spec.environment);
    if (is_apart) spec.environment["TF_CONFIG"] = kEvaluatorAlone;
    spec.environment.erase(env::kEndedWorkersVariable);
    if (ended_workers_ && (rank >= workers_of(options_) || (options_.coordinated && rank == 0)))
      spec.environment[env::kEndedWorkersVariable] = ended_workers_->path();
    spec.environment.erase(env::kEvaluatorVariable);
    if (options_.evaluator) spec.environment[env::kEvaluatorVariable] = "1";
    if (!is_apart) spec.inherited_descriptor = store.descriptor();
    if (releases_signals(spec.command)) spec.held_signals = stop_signals(spec.environment);
    return spec;
  }

  // Sets the role and failure policy of an evaluator or of a process of a job with parameter servers.
  void describe_task(int rank, WorkerSpec& spec, WorkerPlace& place) const {
    const int workers = workers_of(options_);
    if (options_.evaluator && rank == workers + options_.servers) {
      spec.task = "evaluator";
      spec.policy = options_.evaluator_policy;
      place.role = "evaluator";
      place.role_rank = 0;
      place.role_world_size = 1;
      return;
    }
    const bool is_server = rank >= workers;
    spec.ends_with_others = is_server || (options_.coordinated && rank > 0);
    spec.policy = is_server   ? options_.server_policy
                  : rank == 0 ? options_.chief_policy
                              : options_.worker_policy;
    if (is_server && !options_.server_command.empty()) spec.command = options_.server_command;
    place.role = is_server ? "ps" : "worker";
    place.role_rank = is_server ? rank - workers : rank;
    spec.task = str(place.role, " ", *place.role_rank);
    place.role_world_size = is_server ? options_.servers : workers;
  }

  void report(const AttemptEnd& end, const std::vector<WorkerSpec>& specs,
              const std::optional<std::size_t>& root, TimePoint started) const {
    if (end.signal != 0) std::fprintf(stderr, "rondo run: stopped by %s\n", signal_name(end.signal).c_str());
    if (!root) return;
    const bool after_signal = end.stopped.contains(end.workers[*root]->rank) && end.signal != 0;
    if (after_signal && end.workers[*root]->end->signal == end.signal) return;
    std::fprintf(stderr, "rondo run: %s", describe_failure(end, specs, *root, started).c_str());
    if (!log_directory_.empty()) std::fprintf(stderr, "  logs: %s\n", log_directory_.c_str());
  }

  const RunOptions& options_;
  std::string log_directory_;
  std::string scratch_;
  std::string memory_;  // memory directory that outlives an attempt
  int lifeline_;
  std::optional<ServerJob> server_job_;
  // set if servers, a coordinator or an evaluator wait for workers
  std::optional<EndedWorkersFile> ended_workers_;
  env::EnvironmentMap base_environment_ = env::process_environment();
  std::vector<std::vector<int>> bound_cpus_;
  int first_rank_ = 0;  // world rank of this host's first worker
  int world_size_ = 0;
  std::optional<int> terminal_width_ = terminal_width();
};

}  // namespace

std::set<int> expected_signals(const RunOptions& options) {
  std::set<int> signals = stopping_signals(options);
  signals.merge(not_ignored(passed_on_signals(env::process_environment())));
  return signals;
}

int run_job(const RunOptions& given) {
  ensure_standard_streams();
  check(given);
  RunOptions options = given;
  if (options.run_id.empty()) options.run_id = str("rondo-", getpid(), "-", monotonic_ns());
  std::string log_directory;
  const bool wants_logs = !options.log_dir.empty() || options.redirects.any() || options.tee.any();
  if (wants_logs) {
    if (!options.log_dir.empty() && !options.redirects.any() && !options.tee.any()) {
      options.tee = StreamsByRank({true, true});
    }
    log_directory = make_unique_directory(
        options.log_dir.empty() ? std::filesystem::temp_directory_path().string() : options.log_dir,
        options.run_id + "_", "--log-dir");
    if (options.log_dir.empty()) std::fprintf(stderr, "rondo run: logs are in %s\n", log_directory.c_str());
  }
  const ScratchDirectory scratch = wants_logs ? ScratchDirectory() : ScratchDirectory::create();
  // Each attempt finds the files of the previous attempt there.
  const ScratchDirectory memory =
      options.max_restarts > 0 ? ScratchDirectory::create_in_memory() : ScratchDirectory();
  return run_guarded(
      [&](int lifeline) {
        return Job(options, log_directory, scratch.path(), memory.path(), lifeline).run();
      },
      expected_signals(options));
}

}  // namespace rondo::launch
