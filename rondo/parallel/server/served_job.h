#pragma once

#include <string>

#include "rondo/base/time.h"
#include "rondo/control/secret.h"
#include "rondo/env/cluster.h"
#include "rondo/parallel/server/server_options.h"
#include "rondo/server/cluster.h"

namespace rondo {

// What a process that TF_CONFIG makes a worker needs to reach its servers.
struct ServedJob {
  env::Cluster cluster;
  server::ClusterOptions connect;  // as worker cluster.index of cluster.workers.size()
  control::JobSecret secret;
};

// Reads TF_CONFIG and the job's secret for a strategy of that name. `timeout` is the longest wait for a
// server. Throws UsageError when there is no cluster, when this process is a server of it, when the options
// contradict it or themselves, and when there is no secret.
ServedJob read_served_job(const std::string& strategy, const ServerStrategyOptions& options,
                          Duration timeout);

// TF_CONFIG's cluster. Throws UsageError when there is none, or when this process is a server of it.
env::Cluster read_worker_cluster(const std::string& strategy, const env::EnvironmentMap& environment);

}  // namespace rondo
