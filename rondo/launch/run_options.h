#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::launch {

// Which of a worker's output streams something applies to.
struct Streams {
  bool out = false;
  bool err = false;
  bool operator==(const Streams&) const = default;
};

// torchrun's notation for --redirects and --tee: "0" none, "1" standard output, "2" standard error, "3" both;
// or by local rank, "0:1,1:2", where ranks not named get none.
class StreamsByRank {
 public:
  StreamsByRank() = default;
  explicit StreamsByRank(Streams all) : all_(all) {}
  Streams of(int local_rank) const;
  bool any() const;
  // Throws UsageError naming `flag` and the text.
  static StreamsByRank parse(std::string_view text, std::string_view flag);

 private:
  Streams all_;
  std::map<int, Streams> by_rank_;
};

// "0,2" as a set of local ranks below `processes`. Throws UsageError naming `flag`.
std::set<int> parse_ranks(std::string_view text, int processes, std::string_view flag);

enum class Binding { none, core, numa };

// What the end of one process by failure means for the job.
enum class OnFailure {
  stop,     // the others are stopped, too
  go_on,    // the others go on without it
  restart,  // it alone is started again, at most RolePolicy::restarts times; then as stop
};

struct RolePolicy {
  OnFailure on_failure = OnFailure::stop;
  int restarts = 0;
};

// What `rondo run` is told: one program, as n processes of this host, which may be one of several.
struct RunOptions {
  std::vector<std::string> command;  // program and its arguments, complete (see make_command)
  int processes = 1;                 // of this host
  // Of these the last so many are parameter servers (role ps), the others workers: then they find each other
  // by TF_CONFIG, and servers are stopped when all workers have ended.
  int servers = 0;
  // Without servers: worker 0 hands functions to the others (rondo/server/coordinate.h), which end with it;
  // all find each other by TF_CONFIG.
  bool coordinated = false;
  std::vector<std::string> server_command = {};  // of the servers; empty: command
  // Besides the workers, and after the servers, one process of role evaluator: it is none of their ranks, and
  // the job ends with it. TF_CONFIG tells it what it is. Of one host.
  bool evaluator = false;
  // Policies of a job with servers or a coordinator: of worker 0, which validates and saves, of the other
  // workers, of the servers. The evaluator's counts in every job.
  RolePolicy chief_policy = {};
  RolePolicy worker_policy = {.on_failure = OnFailure::go_on};
  RolePolicy evaluator_policy = {.on_failure = OnFailure::go_on};
  RolePolicy server_policy = {.on_failure = OnFailure::restart, .restarts = 3};
  // Of every host, when there are several; empty: this one is alone. processes is
  // processes_of_hosts[node_rank].
  std::vector<int> processes_of_hosts;
  int node_rank = 0;                     // number of this host
  std::string interface;                 // network interface for every engine; empty: each chooses
  std::optional<Duration> join_timeout;  // how long ranks wait for each other to appear; empty: their default
  // How long the processes wait for one of them, for jobs of several hosts or with servers: one that is
  // suspended for longer is killed. Empty: as ranks say when they join, and join_timeout before.
  std::optional<Duration> patience = {};
  std::string run_id;  // empty: one is made up
  std::string role = "default";
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;  // empty: a free one for every attempt, which one host alone may have
  int max_restarts = 0;
  // Restarts of the job before this launcher: of a host that takes the place of one that was lost, as many as
  // the other hosts have had.
  int restart_count = 0;

  std::string log_dir;      // empty: no log files, except where `redirects` or `tee` ask for one
  StreamsByRank redirects;  // to a file instead of the console
  StreamsByRank tee;        // to a file and the console
  std::optional<std::set<int>> shown_ranks;  // whose output the console shows; empty: all

  Binding binding = Binding::none;
  std::optional<int> omp_threads;  // empty: 1 if processes > 1 and OMP_NUM_THREADS is not set
  std::map<int, std::vector<std::string>> wrappers;  // by rank: words that are put before the command
  std::set<int> forwarded_signals;  // that stop the job; empty: default_forwarded_signals(). Workers are told
  // Between TERM and KILL: after a failure, and after a signal to the launcher, when workers may be saving
  // their state.
  Duration grace = std::chrono::seconds(5);
  Duration signal_grace = std::chrono::seconds(30);
};

}  // namespace rondo::launch
