#pragma once

#include <functional>

#include "rondo/base/time.h"
#include "rondo/env/cluster.h"

namespace rondo::server {

// Runs the parameter server of a process with role ps in TF_CONFIG. Serves until the workers have finished,
// or until `stop_requested` returns true and no worker is live: a job that is asked to stop may be about to
// save the server's values. The job's secret and the server's memory come from `environment`. A worker that
// has not connected `timeout` after the chief is no longer waited for. Throws UsageError if the secret is
// missing, and the errors of Service.
void run_task(
    const env::Cluster& cluster, const env::EnvironmentMap& environment = env::process_environment(),
    const std::function<bool()>& stop_requested = [] { return false; },
    Duration timeout = std::chrono::minutes(5));

}  // namespace rondo::server
