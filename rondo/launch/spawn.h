#pragma once

#include <functional>

namespace rondo {

// Runs fn(rank) in `processes` new processes of this program, each with the environment of a `rondo run`
// worker, so that rondo::init() finds its place. Returns when all processes have succeeded. For programs that
// start their own ranks.
//
// Forks: call it before this program starts any thread (libtorch starts threads at its first parallel
// operation) and before any use of CUDA. `fn` ends its process by returning (code 0), by throwing (code 1) or
// by exiting. Output is not prefixed. If this process dies in any way, all processes and their descendants
// are killed.
//
// Throws UsageError if processes < 1. If a process fails, stops the others and throws Error with the root
// cause (rank, pid, how it ended, the exception's message).
void spawn(const std::function<void(int rank)>& fn, int processes);

}  // namespace rondo
