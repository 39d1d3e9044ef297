#pragma once

#include <functional>

#include "rondo/env/environment.h"
#include "rondo/server/coordinator.h"

namespace rondo::server {

// Runs a program of a coordinator and its workers, as TF_CONFIG describes the job (`rondo run --workers N`
// writes it): in the chief, which is the first worker where no task is called so, calls `work` with a
// coordinator and then waits until everything that was scheduled is done; in every other worker calls
// `functions` for it until the chief has ended. Without TF_CONFIG, or for a job of one worker, `functions`
// are called on a thread of this process.
//
// The job's secret comes from `environment` (RONDO_SECRET_FILE, RONDO_SECRET_FD; the launcher gives one), the
// coordinator's address from TF_CONFIG; `options.address` is for a process alone.
//
// Throws, in the chief, what `work` throws (in place of a CancelledError the error that cancelled), what
// Coordinator::join() throws, and Error when all workers of the launcher have ended with functions left to be
// called; in a worker CommunicationError or TimeoutError
// when the chief does not answer for `timeout`. UsageError for a TF_CONFIG that contradicts itself or gives
// this process another role, and where the secret is missing.
void coordinate(const RemoteFunctions& functions, const std::function<void(Coordinator&)>& work,
                CoordinatorOptions options = {},
                const env::EnvironmentMap& environment = env::process_environment(),
                Duration timeout = std::chrono::minutes(5));

}  // namespace rondo::server
