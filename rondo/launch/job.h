#pragma once

#include <set>

#include "rondo/launch/run_options.h"

namespace rondo::launch {

// Runs a program as `options.processes` workers on this host and returns the job's exit code (see failure.h).
// The environment is torchrun's plus RONDO_LAUNCHER and RONDO_STORE_FD. Output lines are prefixed with the
// rank. A failed attempt is reported on standard error and repeated up to `max_restarts` times. This process
// and all processes below it live and die together (see guardian.h). Call it before starting threads. Throws
// UsageError for invalid options before it starts anything.
int run_job(const RunOptions& options);

// Returns the signals that run_job() handles while the job runs: those that stop it and those that it only
// passes on, without those that this process ignores. A caller may hold them (stop_signals.h) until then.
std::set<int> expected_signals(const RunOptions& options);

}  // namespace rondo::launch
