#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::launch {

// A selection of a worker's output streams.
struct Streams {
  bool out = false;
  bool err = false;
  bool operator==(const Streams&) const = default;
};

// Streams by rank, in torchrun's notation for --redirects and --tee: "0" none, "1" standard output, "2"
// standard error, "3" both. By local rank: "0:1,1:2"; ranks not named get none.
class StreamsByRank {
 public:
  StreamsByRank() = default;
  explicit StreamsByRank(Streams all) : all_(all) {}
  Streams of(int local_rank) const;
  bool any() const;
  // Parses the notation. Throws UsageError naming `flag` and the text.
  static StreamsByRank parse(std::string_view text, std::string_view flag);

 private:
  Streams all_;
  std::map<int, Streams> by_rank_;
};

// Parses a list such as "0,2" of local ranks below `processes`. Throws UsageError naming `flag`.
std::set<int> parse_ranks(std::string_view text, int processes, std::string_view flag);

enum class Binding { none, core, numa };

// Consequence of a process's failure for the job.
enum class OnFailure {
  stop,     // stop the other processes, too
  go_on,    // continue without the process
  restart,  // restart only this process, at most RolePolicy::restarts times; then like stop
};

struct RolePolicy {
  OnFailure on_failure = OnFailure::stop;
  int restarts = 0;
};

// Options of `rondo run`: one program as n processes on this host, which may be one of several hosts.
struct RunOptions {
  std::vector<std::string> command;  // program and arguments, complete (see make_command)
  int processes = 1;                 // number of processes on this host
  // Number of parameter servers (role ps): the last of the processes; the others are workers. They find each
  // other by TF_CONFIG, and the servers are stopped when all workers have ended.
  int servers = 0;
  // Without servers: worker 0 is a coordinator that sends functions to the other workers
  // (rondo/server/coordinate.h), and the job ends with worker 0. All processes find each other by TF_CONFIG.
  bool coordinated = false;
  std::vector<std::string> server_command = {};  // command of the servers; empty: same as `command`
  // Whether to run an evaluator, one more process after workers and servers. It has no rank among them, and
  // TF_CONFIG gives it its role. The job ends when it ends. Single-host jobs only.
  bool evaluator = false;
  // Policies of a job with servers or a coordinator: for worker 0 (which validates and saves), the other
  // workers and the servers. evaluator_policy applies to every job.
  RolePolicy chief_policy = {};
  RolePolicy worker_policy = {.on_failure = OnFailure::go_on};
  RolePolicy evaluator_policy = {.on_failure = OnFailure::go_on};
  RolePolicy server_policy = {.on_failure = OnFailure::restart, .restarts = 3};
  // Number of processes of each host; empty for a single-host job. `processes` equals
  // processes_of_hosts[node_rank].
  std::vector<int> processes_of_hosts;
  int node_rank = 0;                     // number of this host
  std::string interface;                 // network interface for all engines; empty: each engine chooses
  std::optional<Duration> join_timeout;  // how long ranks wait for each other to join; empty: their default
  // How long the processes wait for each other, for jobs with several hosts or with servers. A process that
  // is suspended for longer is killed. Empty: the value that ranks report when they join, and join_timeout
  // before that.
  std::optional<Duration> patience = {};
  std::string run_id;  // empty: generated
  std::string role = "default";
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;  // empty: a free port for each attempt; single-host jobs only
  int max_restarts = 0;
  // Number of restarts of the job before this launcher started. A host that replaces a lost one sets it to
  // the number of restarts of the other hosts.
  int restart_count = 0;

  std::string log_dir;                       // empty: no log files, unless `redirects` or `tee` requires one
  StreamsByRank redirects;                   // streams that go to a file instead of the console
  StreamsByRank tee;                         // streams that go to a file and the console
  std::optional<std::set<int>> shown_ranks;  // ranks whose output the console shows; empty: all

  Binding binding = Binding::none;
  std::optional<int> omp_threads;  // empty: 1 if processes > 1 and OMP_NUM_THREADS is not set
  std::map<int, std::vector<std::string>> wrappers;  // by rank: words inserted before the command
  // signals that stop the job, also set for workers; empty: default_forwarded_signals()
  std::set<int> forwarded_signals;
  // Time between TERM and KILL: `grace` after a failure, and `signal_grace` after a signal to the launcher,
  // while workers may be saving their state.
  Duration grace = std::chrono::seconds(5);
  Duration signal_grace = std::chrono::seconds(30);
};

}  // namespace rondo::launch
