#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/launch/worker.h"

namespace rondo::launch {

struct SupervisorOptions {
  std::set<int> forwarded_signals;  // signals that stop the job
  std::set<int> passed_signals;     // signals that are passed on to workers without stopping the job
  Duration grace = std::chrono::seconds(5);
  Duration signal_grace = std::chrono::seconds(30);
  int lifeline = -1;  // readable when the process that requested this job has exited
  // Returns how long others wait for a worker. A worker that is suspended for longer is killed, because the
  // waiting processes may be on other hosts and their exit need not end the job. Empty: suspended workers are
  // left alone.
  std::function<Duration()> patience_of_others = {};
  // Called with the local rank of each process that has ended and is not restarted. May be empty.
  std::function<void(int rank)> on_end = {};
};

// Result of one attempt to run all workers.
struct AttemptEnd {
  std::vector<std::unique_ptr<Worker>> workers;  // all ended, by rank
  std::vector<int> order;                        // ranks in the order of their exits
  std::set<int> tolerated;  // ranks whose exit, successful or not, is not a failure of the job
  std::set<int> stopped;    // ranks that were still running when the launcher started to stop them
  int signal = 0;           // signal to the launcher that ended the attempt; 0: none
  bool abandoned = false;   // the lifeline broke and everything was killed
  int output_error = 0;     // errno of a failed write to standard output
};

// Starts the workers, shows their output, and blocks until all of them and their descendants have exited.
//
// When a worker fails, sends TERM to the others, and KILL after `grace`. A forwarded signal starts
// `signal_grace`; a second INT kills immediately. A passed signal only reaches the workers. After a
// pre-empted worker (exit code 3 and its WorkerSpec::preemption_file), the others have `grace` to save their
// state before TERM. A worker's policy may let the others continue without it or restart it alone. Processes
// that workers leave behind are stopped like workers.
//
// The calling process must be a subreaper with one thread and no other children. Throws Error if a worker
// cannot be started (the others are killed).
AttemptEnd supervise(const std::vector<WorkerSpec>& specs, const SupervisorOptions& options);

}  // namespace rondo::launch
