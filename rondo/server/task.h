#pragma once

#include <functional>

#include "rondo/base/time.h"
#include "rondo/env/cluster.h"

namespace rondo::server {

// What a process does that TF_CONFIG makes a parameter server: serves variables until the workers have
// finished, or `stop_requested` says so and nobody is served any more (a job that is asked to stop may be
// about to save what the server has). The job's secret and the server's memory come from `environment`. A
// worker that has not come `timeout` after the chief is no longer waited for. Throws UsageError where the
// secret is missing, and what Service throws.
void run_task(
    const env::Cluster& cluster, const env::EnvironmentMap& environment = env::process_environment(),
    const std::function<bool()>& stop_requested = [] { return false; },
    Duration timeout = std::chrono::minutes(5));

}  // namespace rondo::server
