#pragma once

#include <functional>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/strategy/registry.h"

namespace rondo {

// Runs a program that is one rank of `rondo train`, with these strategies and the engines of
// register_backend(): parses the command line, whose help and errors include their options, and trains.
// Returns the exit code.
int run_rank(int argc, const char* const* argv, const StrategyRegistry& strategies);

}  // namespace rondo

// Error handling of a job's ranks: the launcher is informed, and the error is printed once.
namespace rondo {

// Returns the result of `body`. Records an exception for the launcher (rondo/launch/failure.h; a JobError
// only on the rank that reports it), and rethrows it for the command line to print. From then on the error's
// exit code is the process's (let_error_end_process()).
int record_failures(const std::function<int()>& body);

// Waits on every rank before a JobError is rethrown: no rank exits until the launcher can no longer terminate
// the rank that reports the error. Collective.
void stand_by_report(const Context& context);

// Loads the accelerator of rondo's tests from lib/rondo_sim.so of the build folder, and its engine between
// devices, if `--device` is "sim" or "sim:N". Called before init(). Throws UsageError if the module does not
// exist, as in an installed program.
void load_simulated_device(const std::string& device);

}  // namespace rondo
