#pragma once

#include <functional>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/strategy/registry.h"

namespace rondo {

// The whole of a program that is one rank of `rondo train`, with these strategies and the engines of
// register_backend(): understands the command line, whose help and errors know their options, and trains.
// Returns the exit code.
int run_rank(int argc, const char* const* argv, const StrategyRegistry& strategies);

}  // namespace rondo

// How the ranks of a job end with an error: the launcher hears of it, and it is printed once.
namespace rondo {

// Returns what `body` returns. What it throws is recorded for the launcher (rondo/launch/failure.h), of a
// JobError by the rank that reports it, and thrown on, for the command line to print. From then on the
// error's exit code is the process's (let_error_end_process()).
int record_failures(const std::function<int()>& body);

// For every rank where a JobError has come up, before it is thrown on: no rank ends before the one that
// reports the error can no longer be ended by the launcher because of that. Collective.
void stand_by_report(const Context& context);

// Loads the accelerator of rondo's tests from lib/rondo_sim.so of the build folder, where `--device` names
// it: "sim" or "sim:N", and its engine between devices. Before init(). Throws UsageError where the module is
// not there, as in an installed program.
void load_simulated_device(const std::string& device);

}  // namespace rondo
