#pragma once

#include <set>
#include <string>
#include <vector>

#include "rondo/env/environment.h"

namespace rondo::launch {

// Signals that ask a job to save its state and exit. A signal that arrives between exec and main() has its
// default action and ends the process, unless it is blocked.

// Parses signal names joined by commas, with or without SIG: "SIGTERM,USR1". Throws UsageError that names
// `flag` for an unknown name or a signal that cannot be handled.
std::set<int> parse_signals(const std::string& list, const std::string& flag);

// Formats signals as parse_signals() accepts them: "SIGTERM,SIGUSR1".
std::string signal_list(const std::set<int>& signals);

// Returns the signals that stop the job and that `rondo run` forwards by default: TERM, INT, HUP and QUIT.
std::set<int> default_forwarded_signals();

// Returns the signals that a launcher passes on to its workers without stopping the job: USR1 in a Slurm job.
// `--signal=USR1@SECONDS` sends it before the time limit.
std::set<int> passed_on_signals(const env::EnvironmentMap& environment);

// Environment variable that passes the signals of `--signals-to-handle` to the ranks.
inline constexpr const char* kStopSignalsVariable = "RONDO_STOP_SIGNALS";

// Returns the signals at which `rondo train` saves and exits: TERM, INT and HUP, USR1 in a Slurm job, and
// those in kStopSignalsVariable. Throws UsageError for a malformed variable.
std::set<int> stop_signals(const env::EnvironmentMap& environment);

// Returns the signals that `rondo run` and `rondo train` hold from main() on: those that both may handle by
// default.
std::set<int> signals_held_at_start();

// Blocks `signals` in the calling thread. Programs started with exec inherit the mask.
void hold_signals(const std::set<int>& signals);
// Unblocks `signals`; pending ones are delivered.
void release_signals(const std::set<int>& signals);

// Returns whether `command` is `rondo train` or one of its programs, from this installation. These programs
// release the held signals after installing their handlers. Any other program would never receive a signal
// that is blocked at its start.
bool releases_signals(const std::vector<std::string>& command);

}  // namespace rondo::launch
