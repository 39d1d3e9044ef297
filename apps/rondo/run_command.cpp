#include "run_command.h"

#include <net/if.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/common/command_line.h"
#include "apps/common/help_format.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/env/address.h"
#include "rondo/env/launcher_place.h"
#include "rondo/launch/command.h"
#include "rondo/launch/host_resources.h"
#include "rondo/launch/job.h"
#include "rondo/launch/stop_signals.h"
#include "subcommands.h"

namespace {

using rondo::str;
using rondo::UsageError;
using rondo::launch::RunOptions;

constexpr int kDefaultMasterPort = 29500;  // torchrun's

constexpr const char* kRunName = "rondo run";
constexpr const char* kRunSummary =
    "Starts a program as several processes of one or more hosts, with torchrun's flags and environment.";
constexpr const char* kRunUsage = "[--] PROGRAM [ARGUMENTS]";
constexpr const char* kExamples = R"(Examples:
  rondo run -n 2 ./train --epochs 3              # two processes of a program
  rondo run -n 2 train.py --epochs 3             # a .py file runs with python3, as with torchrun
  rondo run -n auto --bind-to core -- ./train    # one process per GPU, or per core without GPUs
  rondo run -n 2 --wrap 0:'gdb -batch -ex run -ex bt --args' -- ./train
  rondo run -n 4 --log-dir logs -r 3 ./train     # output to logs/<run>/attempt_0/<rank>/{stdout,stderr}.log
  rondo run -n 2 --max-restarts 3 ./train        # start all of them again when one fails, three times at most
  rondo run --ps 1 --workers 2 -- rondo train --strategy parameter_server --data DATA
                                                 a parameter server and two workers
  rondo run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --interface eth0 -n 4 ./train
                                                 four of eight processes on the first of two hosts; on the second the
                                                 same command with --node-rank 1

Every flag can also be given as PET_<FLAG> in the environment (PET_NPROC_PER_NODE=2), and with _ for -.
Exit code: 0; the exit code of the worker that failed first, or 128 + its signal; 2 wrong usage; 3 pre-empted.)";

// Values of the flags as text, before they are parsed.
struct Flags {
  std::string nproc_per_node = "1";
  std::string nnodes;
  std::string node_rank;
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id;
  std::string rdzv_conf;
  std::string max_restarts = "0";
  std::string restart_count = "0";
  std::string monitor_interval = "0.1";
  std::string start_method = "spawn";
  std::string event_log_handler;
  std::string role = "default";
  std::string ps;
  std::string workers;
  std::string ps_command;
  bool evaluator = false;
  std::string on_failure;
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  std::string master_addr;
  std::string master_port;
  std::string interface;
  std::string local_addr;
  std::string signals;
  std::string shutdown_timeout;
  std::string numa_binding;
  std::string bind_to = "none";
  std::string omp_threads;
  std::string grace;
  std::vector<std::string> wrap;
  bool standalone = false;
  bool module = false;
  bool no_python = false;
  bool run_path = false;
};

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Returns names in CLI11's format, "--max-restarts,--max_restarts", after the short names.
std::string spellings(const std::string& name, const std::string& short_names = "") {
  const std::string other = with_underscores(name);
  return short_names + "--" + name + (other == name ? "" : ",--" + other);
}

std::string environment_name(const std::string& name) {
  std::string result = "PET_" + with_underscores(name);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return result;
}

void add_option(CLI::App& app, const std::string& name, std::string& value, const std::string& help,
                const std::string& type, const std::string& group, const std::string& short_names = "") {
  auto* option = app.add_option(spellings(name, short_names), value, help);
  option->envname(environment_name(name))->type_name(type)->group(group);
}

void add_switch(CLI::App& app, const std::string& name, bool& value, const std::string& help,
                const std::string& group, const std::string& short_names = "") {
  app.add_flag(spellings(name, short_names), value, help)->envname(environment_name(name))->group(group);
}

void add_flags(CLI::App& app, Flags& flags) {
  const std::string job = "Job";
  add_option(app, "nproc-per-node", flags.nproc_per_node,
             "Processes per host: a number, cpu, gpu or auto; 4,4,2 if hosts differ", "N", job, "-n,");
  add_option(app, "max-restarts", flags.max_restarts,
             "Maximum number of restarts of all workers after a failure", "N", job);
  add_option(app, "restart-count", flags.restart_count,
             "Restarts so far of the other hosts, for a host that replaces a lost one", "N", job);
  add_option(app, "role", flags.role, "Name of the workers' role (ROLE_NAME)", "NAME", job);
  add_option(app, "grace", flags.grace,
             "Time between TERM and KILL; default 5s after a failure, 30s after a signal", "TIME", job);
  add_option(app, "shutdown-timeout", flags.shutdown_timeout, "torchrun's name for --grace", "SECONDS", job);
  add_option(app, "signals-to-handle", flags.signals,
             "Signals that stop the job and reach the workers; default TERM, INT, HUP, QUIT", "LIST", job);

  const std::string servers = "Parameter servers and coordinators (docs/parameter_servers.md)";
  add_option(app, "ps", flags.ps, "Number of parameter servers (role ps); all processes get TF_CONFIG", "N",
             servers);
  add_option(app, "workers", flags.workers,
             "Number of workers; the first is the chief, or without --ps the coordinator", "N", servers);
  add_switch(app, "evaluator", flags.evaluator,
             "Also start an evaluator, which evaluates the newest checkpoints", job);
  add_option(app, "ps-command", flags.ps_command, "Command of the parameter servers; default PROGRAM",
             "COMMAND", servers);
  add_option(app, "on-failure", flags.on_failure,
             "Reaction to a failed process by role: ROLE=stop, continue or restart[:TIMES], comma-separated; "
             "default chief=stop,worker=continue,ps=restart:3,evaluator=continue",
             "LIST", servers);

  const std::string program = "Program";
  add_switch(app, "no-python", flags.no_python, "Start PROGRAM directly even if it ends in .py", program);
  add_switch(app, "module", flags.module, "PROGRAM is a Python module", program, "-m,");
  add_switch(app, "run-path", flags.run_path, "PROGRAM is a Python file, whatever its name", program);
  app.add_option("--wrap", flags.wrap, "Start one rank under a debugger or profiler; may be repeated")
      ->type_name("RANK:COMMAND")
      ->group(program)
      ->allow_extra_args(false);

  const std::string output = "Output";
  add_option(app, "log-dir", flags.log_dir,
             "Write log files below DIR; all streams, unless -r or -t select some", "DIR", output);
  add_option(app, "redirects", flags.redirects,
             "Streams to log files only: 1 stdout, 2 stderr, 3 both; per rank 0:1,1:2", "S", output, "-r,");
  add_option(app, "tee", flags.tee, "Streams to log files and the console; values as for --redirects", "S",
             output, "-t,");
  add_option(app, "local-ranks-filter", flags.local_ranks_filter, "Show only these ranks on the console",
             "RANKS", output);

  const std::string processors = "Processors";
  add_option(app, "bind-to", flags.bind_to,
             "Bind every worker to its own cores or NUMA node: core, numa, none", "WHAT", processors);
  add_option(app, "omp-threads", flags.omp_threads,
             "OMP_NUM_THREADS of workers; default 1 if N > 1 and it is not set", "N", processors);
  add_option(app, "numa-binding", flags.numa_binding, "torchrun's name for --bind-to numa: node", "node",
             processors);

  const std::string meeting = "Rendezvous";
  add_switch(app, "standalone", flags.standalone, "Job of one host with a free port; the default", meeting);
  add_option(app, "nnodes", flags.nnodes,
             "Number of hosts, each with one rondo run; default: from srun or mpirun, else 1", "N", meeting);
  add_option(app, "node-rank", flags.node_rank,
             "Index of this host; default: from srun, mpirun or JOB_COMPLETION_INDEX, else 0", "N", meeting);
  add_option(app, "master-addr", flags.master_addr,
             "Address of host 0 (MASTER_ADDR); default: 127.0.0.1 on one host, Slurm's first host", "HOST",
             meeting);
  add_option(app, "master-port", flags.master_port,
             "Port on host 0 (MASTER_PORT); default: a free one, for several hosts 29500", "PORT", meeting);
  add_option(app, "interface", flags.interface,
             "Network interface between the hosts (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)", "NAME", meeting);
  add_option(app, "local-addr", flags.local_addr, "Accepted, but ignored", "HOST", meeting);
  add_option(app, "rdzv-backend", flags.rdzv_backend, "static or c10d", "NAME", meeting);
  add_option(app, "rdzv-endpoint", flags.rdzv_endpoint, "With --rdzv-backend static: HOST:PORT of rank 0",
             "HOST:PORT", meeting);
  add_option(app, "rdzv-id", flags.rdzv_id, "TORCHELASTIC_RUN_ID, and the name of the log directory", "ID",
             meeting);
  add_option(app, "rdzv-conf", flags.rdzv_conf,
             "join_timeout=SECONDS: time for all ranks to join; other keys are ignored", "K=V,...", meeting);

  const std::string accepted = "Accepted for compatibility with torchrun, without effect";
  add_option(app, "monitor-interval", flags.monitor_interval, "Workers are watched without polling",
             "SECONDS", accepted);
  add_option(app, "start-method", flags.start_method, "spawn, fork, forkserver", "NAME", accepted);
  add_option(app, "event-log-handler", flags.event_log_handler, "", "NAME", accepted);
}

int parse_count(const std::string& text, const std::string& flag, int least) {
  const long long value = rondo::parse_integer(text, flag);
  if (value < least || value > 1'000'000) throw UsageError(str(flag, " ", text, " must be at least ", least));
  return static_cast<int>(value);
}

rondo::launch::Binding parse_binding(const Flags& flags) {
  using rondo::launch::Binding;
  if (!flags.numa_binding.empty() && flags.numa_binding != "node") {
    throw UsageError(
        str("--numa-binding ", flags.numa_binding, " is not 'node'; see --bind-to for other bindings"));
  }
  if (!flags.numa_binding.empty() || flags.bind_to == "numa") return Binding::numa;
  if (flags.bind_to == "core") return Binding::core;
  if (flags.bind_to == "none") return Binding::none;
  throw UsageError(str("--bind-to ", flags.bind_to, " is not one of core, numa, none"));
}

void parse_wrappers(const std::vector<std::string>& texts, RunOptions& options) {
  for (const std::string& text : texts) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos)
      throw UsageError(str("--wrap ", text, " is not RANK:COMMAND, as in 0:'gdb --args'"));
    std::vector<std::string> words = rondo::launch::split_words(text.substr(colon + 1), "--wrap");
    words.front() = rondo::launch::find_program(words.front());
    for (const int rank : rondo::launch::parse_ranks(text.substr(0, colon), options.processes, "--wrap")) {
      options.wrappers[rank] = words;
    }
  }
}

// Parses "2", or torchrun's "2:2". Ranges of numbers are rejected: they need an elastic job.
int parse_host_count(const std::string& text) {
  const std::vector<std::string> bounds = rondo::split(text, ':');
  if (bounds.empty() || bounds.size() > 2 || bounds.front() != bounds.back()) {
    throw UsageError(
        str("--nnodes ", text,
            " is not a number of hosts; ranges are not supported, because a job keeps its number of hosts"));
  }
  return parse_count(bounds.front(), "--nnodes", 1);
}

// The job's hosts and this host's rank: from flags, else from the scheduler that started a launcher on each
// host.
struct Hosts {
  int count = 1;
  int node_rank = 0;
  std::optional<rondo::env::LauncherPlace> place;  // set if the scheduler was queried
};

// Returns this host's rank for --nnodes above 1 without --node-rank.
int node_rank_among(int hosts, const std::string& nnodes, const Hosts& told) {
  if (told.place && told.place->num_nodes != hosts) {
    throw UsageError(str("--nnodes ", nnodes, " contradicts ", told.place->launcher_source,
                         ", which has started ", told.place->num_nodes,
                         " launchers: leave --nnodes out, or give --node-rank too"));
  }
  if (told.place) return told.place->node_rank;
  return rondo::env::kubernetes_node_rank(rondo::env::process_environment()).value_or(0);
}

Hosts find_hosts(const Flags& flags) {
  Hosts hosts;
  if (!flags.nnodes.empty()) hosts.count = parse_host_count(flags.nnodes);
  const bool is_told = !flags.node_rank.empty() || (!flags.nnodes.empty() && hosts.count == 1);
  if (!is_told && !flags.standalone)
    hosts.place = rondo::env::find_launcher_place(rondo::env::process_environment());
  if (!flags.node_rank.empty()) {
    hosts.node_rank = parse_count(flags.node_rank, "--node-rank", 0);
  } else if (hosts.count > 1) {
    hosts.node_rank = node_rank_among(hosts.count, flags.nnodes, hosts);
  } else if (hosts.place) {
    hosts.count = hosts.place->num_nodes;
    hosts.node_rank = hosts.place->node_rank;
  }
  if (hosts.node_rank >= hosts.count) {
    throw UsageError(str(flags.node_rank.empty() ? "JOB_COMPLETION_INDEX=" : "--node-rank ", hosts.node_rank,
                         " is out of range: --nnodes ", hosts.count, " allows ",
                         hosts.count == 1 ? "only 0" : str("0 to ", hosts.count - 1)));
  }
  return hosts;
}

// Parses "4", or one number per host: "4,4,2".
void parse_processes(const Flags& flags, const Hosts& found, RunOptions& options) {
  const std::string& text = flags.nproc_per_node;
  const int hosts = found.count;
  std::vector<int> counts;
  if (text.find(',') == std::string::npos) {
    counts.assign(static_cast<std::size_t>(hosts), rondo::launch::process_count(text, "--nproc-per-node"));
  } else {
    for (const std::string& entry : rondo::split(text, ','))
      counts.push_back(parse_count(entry, str("--nproc-per-node ", text, ":"), 1));
    if (static_cast<int>(counts.size()) != hosts) {
      throw UsageError(
          str("--nproc-per-node ", text, " lists ", counts.size(), " hosts, but --nnodes is ", hosts));
    }
  }
  options.node_rank = found.node_rank;
  options.processes = counts[static_cast<std::size_t>(options.node_rank)];
  if (hosts > 1) options.processes_of_hosts = counts;
}

// Parses "worker=restart:3,ps=stop".
void parse_policies(const std::string& text, RunOptions& options) {
  using rondo::launch::OnFailure;
  for (const std::string& entry : rondo::split(text, ',')) {
    const std::size_t equals = entry.find('=');
    const std::string role = entry.substr(0, equals);
    const std::string what = equals == std::string::npos ? "" : entry.substr(equals + 1);
    rondo::launch::RolePolicy policy;
    if (what == "continue") {
      policy.on_failure = OnFailure::go_on;
    } else if (what == "restart" || what.starts_with("restart:")) {
      policy = {.on_failure = OnFailure::restart, .restarts = 3};
      if (what != "restart") policy.restarts = parse_count(what.substr(8), "--on-failure " + entry, 1);
    } else if (what != "stop") {
      throw UsageError(
          str("--on-failure ", text, ": '", entry, "' is not ROLE=stop, continue or restart[:TIMES]"));
    }
    if (role == "chief") {
      options.chief_policy = policy;
    } else if (role == "worker") {
      options.worker_policy = policy;
    } else if (role == "ps") {
      options.server_policy = policy;
    } else if (role == "evaluator") {
      options.evaluator_policy = policy;
    } else {
      throw UsageError(
          str("--on-failure ", text, ": the role '", role, "' is not chief, worker, ps or evaluator"));
    }
  }
}

// Configures a job with roles on this host alone: with parameter servers, or with a coordinator.
void parse_roles(const Flags& flags, RunOptions& options) {
  options.evaluator = flags.evaluator;
  const int evaluators = options.evaluator ? 1 : 0;
  if (flags.ps.empty() && flags.workers.empty()) {
    options.processes += evaluators;
    for (const auto& [flag, value] :
         {std::pair("--ps-command", flags.ps_command), {"--on-failure", flags.on_failure}}) {
      if (!value.empty()) throw UsageError(str(flag, " ", value, " needs roles: give --ps or --workers"));
    }
    return;
  }
  const std::string given =
      flags.ps.empty() ? "--workers " + flags.workers : str("--ps ", flags.ps, " with --workers");
  if (flags.nproc_per_node != "1" || !options.processes_of_hosts.empty()) {
    throw UsageError(str(given, " says how many processes this host has; --nproc-per-node ",
                         flags.nproc_per_node, " and --nnodes ",
                         std::max<std::size_t>(1, options.processes_of_hosts.size()), " contradict it"));
  }
  options.coordinated = flags.ps.empty();
  if (!options.coordinated) options.servers = parse_count(flags.ps, "--ps", 1);
  const int workers = flags.workers.empty() ? 1 : parse_count(flags.workers, "--workers", 1);
  options.processes = options.servers + workers + evaluators;
  parse_policies(flags.on_failure, options);
  if (flags.ps_command.empty()) return;
  if (options.coordinated)
    throw UsageError(str("--ps-command ", flags.ps_command, " is for parameter servers: give --ps"));
  options.server_command = rondo::launch::split_words(flags.ps_command, "--ps-command");
  options.server_command.front() = rondo::launch::find_program(options.server_command.front());
}

void check_accepted(const Flags& flags) {
  constexpr std::array backends = {"static", "c10d"};
  if (std::find(backends.begin(), backends.end(), flags.rdzv_backend) == backends.end()) {
    throw UsageError(str("--rdzv-backend ", flags.rdzv_backend, " is not one of static, c10d"));
  }
  constexpr std::array methods = {"spawn", "fork", "forkserver"};
  if (std::find(methods.begin(), methods.end(), flags.start_method) == methods.end()) {
    throw UsageError(str("--start-method ", flags.start_method, " is not one of spawn, fork, forkserver"));
  }
  rondo::parse_number(flags.monitor_interval, "--monitor-interval");
}

// Parses "join_timeout=60,..." (torchrun's keys); keys that only torchrun's rendezvous supports are accepted
// and ignored.
void parse_rdzv_conf(const std::string& text, RunOptions& options) {
  for (const std::string& entry : rondo::split(text, ',')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos)
      throw UsageError(str("--rdzv-conf ", text, ": '", entry, "' is not KEY=VALUE"));
    if (entry.substr(0, equals) != "join_timeout") continue;
    options.join_timeout = rondo::parse_duration(entry.substr(equals + 1), "--rdzv-conf join_timeout");
    if (*options.join_timeout <= rondo::Duration::zero())
      throw UsageError(str("--rdzv-conf ", text, ": join_timeout must be positive"));
  }
}

void check_interface(const std::string& name) {
  if (name.empty() || if_nametoindex(name.c_str()) != 0) return;
  std::vector<std::string> known;
  if (struct if_nameindex* const all = if_nameindex()) {
    for (const struct if_nameindex* entry = all; entry->if_index != 0; ++entry)
      known.emplace_back(entry->if_name);
    if_freenameindex(all);
  }
  throw UsageError(str("--interface ", name,
                       " is not a network interface of this host; there are: ", rondo::join(known, ", ")));
}

void parse_meeting_place(const Flags& flags, const Hosts& hosts, RunOptions& options) {
  const bool several = hosts.count > 1;
  options.master_addr = rondo::env::without_brackets(flags.master_addr);
  std::string port = flags.master_port;
  if (several && flags.standalone)
    throw UsageError("--standalone is for one host, but --nnodes asks for several");
  if (flags.standalone) {
    options.run_id.clear();
    port.clear();
  } else {
    options.run_id = flags.rdzv_id;
    if (flags.rdzv_backend == "static" && !flags.rdzv_endpoint.empty()) {
      const rondo::env::HostPort endpoint = rondo::env::split_host_port(flags.rdzv_endpoint);
      options.master_addr = endpoint.host;
      if (!endpoint.port.empty()) port = endpoint.port;
    }
  }
  if (options.run_id.find('/') != std::string::npos)
    throw UsageError(str("--rdzv-id ", options.run_id, " contains a /"));
  if (several && hosts.place) {
    if (options.master_addr.empty()) options.master_addr = hosts.place->master_addr;
    if (port.empty()) port = std::to_string(hosts.place->master_port);
    if (options.run_id.empty()) options.run_id = hosts.place->run_id;
  }
  if (several && options.master_addr.empty()) {
    throw UsageError(str("--master-addr is missing: with ",
                         hosts.place ? str("launchers on ", hosts.count, " hosts, which ",
                                           hosts.place->launcher_source, " has started,")
                                     : str("--nnodes ", hosts.count),
                         " every host must be told the address of host 0, as in --master-addr 10.0.0.1"));
  }
  if (options.master_addr.empty()) options.master_addr = "127.0.0.1";
  if (port.empty() || port == "0") {
    // Other hosts could not learn a free port.
    if (several) options.master_port = kDefaultMasterPort;
    return;
  }
  const long long number = rondo::parse_integer(port, "--master-port");
  if (number < 1 || number > 65535) throw UsageError(str("--master-port ", port, " is not in 1-65535"));
  options.master_port = static_cast<int>(number);
}

RunOptions to_options(const Flags& flags, const std::string& program,
                      const std::vector<std::string>& arguments) {
  check_accepted(flags);
  RunOptions options;
  const Hosts hosts = find_hosts(flags);
  parse_processes(flags, hosts, options);
  parse_roles(flags, options);
  check_interface(flags.interface);
  options.interface = flags.interface;
  parse_rdzv_conf(flags.rdzv_conf, options);
  options.role = flags.role;
  options.max_restarts = parse_count(flags.max_restarts, "--max-restarts", 0);
  options.restart_count = parse_count(flags.restart_count, "--restart-count", 0);
  parse_meeting_place(flags, hosts, options);
  options.log_dir = flags.log_dir;
  options.redirects = rondo::launch::StreamsByRank::parse(flags.redirects, "--redirects");
  options.tee = rondo::launch::StreamsByRank::parse(flags.tee, "--tee");
  if (!flags.local_ranks_filter.empty()) {
    options.shown_ranks =
        rondo::launch::parse_ranks(flags.local_ranks_filter, options.processes, "--local-ranks-filter");
  }
  options.binding = parse_binding(flags);
  if (!flags.omp_threads.empty()) options.omp_threads = parse_count(flags.omp_threads, "--omp-threads", 1);
  if (!flags.signals.empty())
    options.forwarded_signals = rondo::launch::parse_signals(flags.signals, "--signals-to-handle");
  const std::string& grace = flags.grace.empty() ? flags.shutdown_timeout : flags.grace;
  if (!grace.empty()) {
    options.grace = rondo::parse_duration(grace, flags.grace.empty() ? "--shutdown-timeout" : "--grace");
    if (options.grace < rondo::Duration::zero()) throw UsageError(str("--grace ", grace, " is negative"));
    options.signal_grace = options.grace;
  }
  if (flags.run_path) {
    options.command = rondo::launch::make_command("python3", {}, {.no_python = true});
    if (!std::filesystem::exists(program)) throw UsageError(str("program '", program, "': no such file"));
    options.command.insert(options.command.end(), {"-u", program});
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  } else {
    options.command = rondo::launch::make_command(program, arguments,
                                                  {.module = flags.module, .no_python = flags.no_python});
  }
  parse_wrappers(flags.wrap, options);
  return options;
}

// main() holds all signals that may be handled. Restores the default action of those that this job does not
// handle.
void release_unhandled_signals(const RunOptions& options) {
  std::set<int> unhandled = rondo::launch::signals_held_at_start();
  for (const int signal : rondo::launch::expected_signals(options)) unhandled.erase(signal);
  rondo::launch::release_signals(unhandled);
}

[[noreturn]] void unknown_flag(const CLI::App& app, const std::string& given) {
  throw UsageError(
      str(rondo::describe_unknown_flag(app, given), " (flags of the program come after its name)"));
}

void declare_run(CLI::App& app, Flags& flags) {
  app.footer(kExamples);
  app.prefix_command();  // the first word that is no flag starts the program's command line
  add_flags(app, flags);
  rondo::use_rondo_help(app, kRunUsage);
}

}  // namespace

rondo::HelpPage page_of_run_command() {
  Flags flags;
  CLI::App app(kRunSummary, kRunName);
  declare_run(app, flags);
  return rondo::help_page(app, kRunUsage);
}

int run_command(std::vector<std::string> arguments) {
  if (arguments == std::vector<std::string>{rondo::kHelpJsonFlag}) {
    std::cout << rondo::help_to_json(page_of_run_command()).dump() << "\n";
    return 0;
  }
  Flags flags;
  CLI::App app(kRunSummary, kRunName);
  declare_run(app, flags);
  if (const auto code = parse_arguments(app, std::move(arguments))) return *code;
  std::vector<std::string> command = app.remaining();
  const bool separated = !command.empty() && command.front() == "--";
  if (separated) command.erase(command.begin());
  if (command.empty())
    throw UsageError("no PROGRAM was given; usage: rondo run [FLAGS] [--] PROGRAM [ARGUMENTS]");
  if (!separated && command.front().starts_with("-")) unknown_flag(app, command.front());
  const std::string program = command.front();
  command.erase(command.begin());
  const RunOptions options = to_options(flags, program, command);
  release_unhandled_signals(options);
  return rondo::launch::run_job(options);
}
