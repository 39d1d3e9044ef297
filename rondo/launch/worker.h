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

// Where one output stream of a worker goes.
struct StreamSpec {
  enum class Route {
    inherit,  // the launcher's own stream
    file,     // straight into `log_path`
    pipe,     // through the launcher: console and, if `log_path` is set, a file
  };
  Route route = Route::inherit;
  bool shown = true;  // pipe: on the console
  std::string log_path;
  // pipe: the worker sees a terminal of this size instead of a pipe, where the system gives one.
  std::optional<TerminalSize> terminal = {};
};

// One process to start: a program, or a function of this program.
struct WorkerSpec {
  int rank = 0;        // among this host's workers
  int first_rank = 0;  // in the world, of this host's first worker
  int world_rank() const { return first_rank + rank; }
  std::string task;  // "ps 0"; empty: a rank like the others
  // For messages: "rank 2", or "ps 0 (rank 2)".
  std::string name() const;
  std::vector<std::string> command;
  std::function<int()> function;  // instead of `command`; returns the exit code
  env::EnvironmentMap environment;
  int inherited_descriptor = -1;  // the job's store
  std::set<int> held_signals;     // it starts with them blocked, and unblocks them (see releases_signals())
  std::vector<int> cpus;          // empty: not bound
  bool gets_stdin = false;        // else it reads end of file
  StreamSpec out;
  StreamSpec err;
  std::string error_file;
  std::string preemption_file;    // see env::kPreemptionFileVariable; empty: exit code 3 alone tells
  RolePolicy policy;              // what its failure means
  bool ends_with_others = false;  // stopped when all without this have ended
};

// How a worker ended.
struct WorkerEnd {
  int exit_code = 0;
  int signal = 0;  // 0: it exited by itself
  bool core_dumped = false;
  Duration suspended{};            // not zero: the launcher has killed it because it was suspended so long
  bool preempted = false;          // it exited with code 3, and said that it was pre-empted
  std::string stderr_tail;         // empty when its standard error did not come through the launcher
  bool stderr_shown_last = false;  // the end of it is right above what the launcher prints now
  int exec_error = 0;              // errno with which the program could not be started
  TimePoint at{};
  std::chrono::system_clock::time_point wall_time{};
  bool failed() const { return exit_code != 0 || signal != 0; }
};

// A started worker: the leader of a process group of its own, killed by the kernel if this process dies.
struct Worker {
  int rank = 0;  // both as in its spec
  int first_rank = 0;
  int world_rank() const { return first_rank + rank; }
  pid_t pid = -1;
  Descriptor pidfd;
  std::optional<WorkerEnd> end;
  int starts = 1;                     // how often this rank was started
  bool suspended_at_failure = false;  // seen in state T when another worker failed
  Duration suspended{};               // for how long it has been seen in state T without a break
  bool outlasted = false;             // others wait for it no longer: the launcher has killed it
  std::unique_ptr<WorkerOutput> out;
  std::unique_ptr<WorkerOutput> err;
};

// Signal handling that a worker starts with: that of the program before the launcher changed it.
struct SignalDefaults {
  sigset_t mask;
  struct sigaction pipe;
};

// Starts `spec`. `consoles` are where shown streams go; `exec_errors` is the writing end of a pipe on which
// the child reports {rank, errno} when it cannot start the program (it then exits with 127). Throws Error
// when there is no room for another process.
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
