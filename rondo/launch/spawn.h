#pragma once

#include <functional>

namespace rondo {

// Runs fn(rank) in `processes` new processes of this program, each with the environment that `rondo run`
// gives its workers, so that rondo::init() in them finds its place; returns when all have ended well. For
// programs that start their own ranks.
//
// The processes are forked: call it before this program starts any thread (libtorch starts some at its first
// parallel operation), and use nothing of CUDA before it. `fn` ends its process by returning (0), by throwing
// (1) or by exiting. Output is not prefixed. If this process dies, however it does, so do all of them and
// whatever they started.
//
// Throws UsageError when processes < 1, and Error with the root cause (rank, pid, how it ended, the
// exception's text) when one fails; the others have been stopped by then.
void spawn(const std::function<void(int rank)>& fn, int processes);

}  // namespace rondo
