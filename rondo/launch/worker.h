#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rondo/base/terminal.h"
#include "rondo/base/time.h"
#include "rondo/env/environment.h"
#include "rondo/launch/descriptor.h"
#include "rondo/launch/run_options.h"
#include "rondo/launch/worker_output.h"

namespace rondo::launch {

// Destination of one output stream of a worker.
struct StreamSpec {
  enum class Route {
    inherit,  // the launcher's own stream
    file,     // directly into `log_path`
    pipe,     // through the launcher: to the console and, if `log_path` is set, to a file
  };
  Route route = Route::inherit;
  bool shown = true;  // pipe: shown on the console
  std::string log_path;
  // pipe: the worker sees a terminal of this size instead of a pipe, if the system provides one.
  std::optional<TerminalSize> terminal = {};
};

// Description of a process to start: a program, or a function of this program.
struct WorkerSpec {
  int rank = 0;        // rank among this host's workers
  int first_rank = 0;  // world rank of this host's first worker
  int world_rank() const { return first_rank + rank; }
  std::string task;  // "ps 0"; empty: an ordinary rank
  // Returns the name for messages: "rank 2", or "ps 0 (rank 2)".
  std::string name() const;
  std::vector<std::string> command;
  std::function<int()> function;  // instead of `command`; returns the exit code
  env::EnvironmentMap environment;
  int inherited_descriptor = -1;  // descriptor of the job's store
  // signals blocked at its start, which it unblocks itself (see releases_signals())
  std::set<int> held_signals;
  std::vector<int> cpus;    // CPU affinity; empty: unrestricted
  bool gets_stdin = false;  // false: standard input is at end of file
  StreamSpec out;
  StreamSpec err;
  std::string error_file;
  // see env::kPreemptionFileVariable; empty: exit code 3 alone means pre-emption
  std::string preemption_file;
  RolePolicy policy;              // consequence of the worker's failure
  bool ends_with_others = false;  // stopped when all workers without this flag have ended
};

// How a worker ended.
struct WorkerEnd {
  int exit_code = 0;
  int signal = 0;  // 0: the worker exited without a signal
  bool core_dumped = false;
  Duration suspended{};     // not zero: the launcher killed the worker because it was suspended for this long
  bool preempted = false;   // the worker exited with code 3 and reported a pre-emption
  std::string stderr_tail;  // end of standard error; empty if that did not pass through the launcher
  bool stderr_shown_last = false;  // the end of stderr is directly above the launcher's next output
  int exec_error = 0;              // errno if the program could not be started
  TimePoint at{};
  std::chrono::system_clock::time_point wall_time{};
  bool failed() const { return exit_code != 0 || signal != 0; }
};

// A started worker: the leader of its own process group. The kernel kills it if this process dies.
struct Worker {
  int rank = 0;  // rank among this host's workers, as in its WorkerSpec
  int first_rank = 0;
  int world_rank() const { return first_rank + rank; }
  pid_t pid = -1;
  Descriptor pidfd;
  std::optional<WorkerEnd> end;
  int starts = 1;                     // number of starts of this rank
  bool suspended_at_failure = false;  // was in state T when another worker failed
  Duration suspended{};               // time that the worker has been in state T without interruption
  bool outlasted = false;             // killed by the launcher: suspended for longer than others wait
  std::unique_ptr<WorkerOutput> out;
  std::unique_ptr<WorkerOutput> err;
};

// Signal state for new workers: that of the program before the launcher changed it.
struct SignalDefaults {
  sigset_t mask;
  struct sigaction pipe;
};

// Context for starting workers. Shown streams go to `out` and `err`. `exec_errors` is the write end of a pipe
// on which a child reports an ExecError if it cannot start the program; it then exits with 127.
// start_worker() throws Error if the system cannot create another process.
struct StartContext {
  EventLoop& loop;
  Console& out;
  Console& err;
  int exec_errors;
  const SignalDefaults& signals;
};
std::unique_ptr<Worker> start_worker(const WorkerSpec& spec, const StartContext& context);

struct ExecError {
  int rank;
  int error;
};

}  // namespace rondo::launch
