#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/env/environment.h"

namespace rondo::env {

// A job with parameter servers, as TF_CONFIG describes it, and which of its processes this is.
struct Cluster {
  std::vector<std::string> workers;  // addresses, "host:port"; the chief (or master) is the first
  std::vector<std::string> servers;  // of the tasks of role ps
  bool is_server = false;            // this process's role
  int index = 0;                     // of this process among the workers, or among the servers
};

// Empty when TF_CONFIG is not set or describes one process alone. Throws UsageError naming what contradicts
// what: a task that the cluster lacks, a role without members, two tasks of one address, an evaluator.
std::optional<Cluster> read_cluster(const EnvironmentMap& environment);
// The same for a job that needs no parameter servers: there may be none.
std::optional<Cluster> read_workers(const EnvironmentMap& environment);

// Whether TF_CONFIG gives this process the role evaluator: it stands beside the cluster and evaluates what
// others train. Throws UsageError for a TF_CONFIG that cannot be read.
bool is_evaluator(const EnvironmentMap& environment);

// Set by `rondo run --evaluator` for every process of the job.
inline constexpr const char* kEvaluatorVariable = "RONDO_EVALUATOR";

// Whether the job has such a process: TF_CONFIG's cluster lists one, or `rondo run --evaluator` started it.
// Throws UsageError as is_evaluator() does.
bool has_evaluator(const EnvironmentMap& environment);

}  // namespace rondo::env
