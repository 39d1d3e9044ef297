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
  std::set<int> forwarded_signals;  // that stop the job
  std::set<int> passed_signals;     // that workers get, without an end of the job
  Duration grace = std::chrono::seconds(5);
  Duration signal_grace = std::chrono::seconds(30);
  int lifeline = -1;  // readable when whoever asked for this job is gone
  // How long others wait for a worker. One that is suspended for longer is killed, since those that have
  // given it up need not be on this host, and their end need not end the job. Empty: a suspended worker is
  // left alone.
  std::function<Duration()> patience_of_others = {};
  // Told the rank, on this host, of each process that has ended and is not started again. May be empty.
  std::function<void(int rank)> on_end = {};
};

// How one attempt to run all workers went.
struct AttemptEnd {
  std::vector<std::unique_ptr<Worker>> workers;  // all ended, by rank
  std::vector<int> order;                        // ranks in the order in which they ended
  std::set<int> tolerated;                       // ranks whose end, whatever it was, is no failure of the job
  std::set<int> stopped;   // ranks that were still running when the launcher began to stop them
  int signal = 0;          // the signal to the launcher that ended it, if one did
  bool abandoned = false;  // the lifeline broke: everything was killed
  int output_error = 0;    // errno of standard output that could not be written
};

// Starts the workers, shows their output, and waits until all of them and everything they started are gone.
//
// When one fails the others get TERM, and KILL after `grace`. A forwarded signal starts `signal_grace`; a
// second INT kills at once. A passed signal only reaches the workers. A worker that was pre-empted (exit code
// 3, and its WorkerSpec::preemption_file) gives the others `grace` to save their state before TERM. Where a
// worker's policy says so the others go on without it, or it alone is started again. Processes that workers
// leave behind are stopped like workers.
//
// To be called in a process that is a subreaper, has one thread, and has no other children. Throws Error when
// a worker cannot be started (the others are killed).
AttemptEnd supervise(const std::vector<WorkerSpec>& specs, const SupervisorOptions& options);

}  // namespace rondo::launch
