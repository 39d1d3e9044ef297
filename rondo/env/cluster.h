#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rondo/env/environment.h"

namespace rondo::env {

// A job with parameter servers as TF_CONFIG describes it, and the place of this process in it.
struct Cluster {
  std::vector<std::string> workers;  // addresses "host:port"; the chief (or master) comes first
  std::vector<std::string> servers;  // addresses of the tasks with role ps
  bool is_server = false;            // role of this process
  int index = 0;                     // index of this process among the workers or among the servers
};

// Parses TF_CONFIG; empty if it is not set or describes a single process. Throws UsageError naming the
// contradiction: a task missing from the cluster, a role without members, two tasks with one address, an
// evaluator.
std::optional<Cluster> read_cluster(const EnvironmentMap& environment);
// Like read_cluster(), but the cluster may have no parameter servers.
std::optional<Cluster> read_workers(const EnvironmentMap& environment);

// Returns whether TF_CONFIG gives this process the role evaluator, which is outside the cluster and evaluates
// the model that the others train. Throws UsageError if TF_CONFIG cannot be parsed.
bool is_evaluator(const EnvironmentMap& environment);

// Variable that `rondo run --evaluator` sets for every process of the job.
inline constexpr const char* kEvaluatorVariable = "RONDO_EVALUATOR";

// Returns whether the job has an evaluator: TF_CONFIG's cluster lists one, or `rondo run --evaluator` started
// it. Throws UsageError like is_evaluator().
bool has_evaluator(const EnvironmentMap& environment);

}  // namespace rondo::env
