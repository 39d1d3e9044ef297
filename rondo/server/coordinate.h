#pragma once

#include <functional>

#include "rondo/env/environment.h"
#include "rondo/server/coordinator.h"

namespace rondo::server {

// Runs a program that consists of a coordinator and its workers, in the roles of TF_CONFIG (`rondo run
// --workers N` sets it). In the chief (or the first worker if no task has that role): calls `work` with a
// coordinator and then blocks until all scheduled functions are done. In every other worker: calls
// `functions` on behalf of the coordinator until the chief has ended. Without TF_CONFIG or with a single
// worker, `functions` run on a thread of this process.
//
// The job's secret comes from `environment` (RONDO_SECRET_FILE, RONDO_SECRET_FD; the launcher sets one), and
// the coordinator's address from TF_CONFIG. `options.address` is used only by a process alone.
//
// In the chief, throws the exception of `work` (for a CancelledError, the error that caused the
// cancellation) and the errors of Coordinator::join(). Throws Error if all workers of the launcher have
// exited while functions are left. In a worker, throws CommunicationError or TimeoutError if the chief does
// not answer within `timeout`. Throws UsageError for a contradictory TF_CONFIG, for another role of this
// process, and if the secret is missing.
void coordinate(const RemoteFunctions& functions, const std::function<void(Coordinator&)>& work,
                CoordinatorOptions options = {},
                const env::EnvironmentMap& environment = env::process_environment(),
                Duration timeout = std::chrono::minutes(5));

}  // namespace rondo::server
