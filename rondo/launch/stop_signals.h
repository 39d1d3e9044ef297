#pragma once

#include <set>
#include <string>
#include <vector>

#include "rondo/env/environment.h"

namespace rondo::launch {

// Signals that ask a job to save its state and end, and how they get past the start of a program: a signal
// that arrives between exec and main() has its default action, which ends the process, unless it is blocked.

// Reads names joined by commas, with or without SIG: "SIGTERM,USR1". Throws UsageError that names `flag` for
// a name that is no signal, or of one that cannot be handled.
std::set<int> parse_signals(const std::string& list, const std::string& flag);

// "SIGTERM,SIGUSR1", as parse_signals() reads it.
std::string signal_list(const std::set<int>& signals);

// Signals that `rondo run` passes on by default, and that stop the job: TERM, INT, HUP and QUIT.
std::set<int> default_forwarded_signals();

// Signals that a launcher passes on to its workers without stopping the job: in a Slurm job USR1, by which
// `--signal=USR1@SECONDS` announces the end of the time limit.
std::set<int> passed_on_signals(const env::EnvironmentMap& environment);

// Environment variable with the signals that `--signals-to-handle` names, for the ranks.
inline constexpr const char* kStopSignalsVariable = "RONDO_STOP_SIGNALS";

// Signals at which `rondo train` saves and ends: TERM, INT and HUP, in a Slurm job USR1, and those of
// kStopSignalsVariable. Throws UsageError for a malformed variable.
std::set<int> stop_signals(const env::EnvironmentMap& environment);

// Signals that `rondo run` and `rondo train` hold from main() on: those that both may handle by default.
std::set<int> signals_held_at_start();

// Blocks `signals` in the calling thread. A program that exec starts inherits this.
void hold_signals(const std::set<int>& signals);
// Unblocks them; what has arrived meanwhile is delivered.
void release_signals(const std::set<int>& signals);

// Whether `command` is `rondo train` or one of its programs, of this installation: they release the signals
// when their handlers are installed. Any other program would never see a signal that it starts with blocked.
bool releases_signals(const std::vector<std::string>& command);

}  // namespace rondo::launch
