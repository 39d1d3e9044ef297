#pragma once

#include <optional>
#include <string>

#include "rondo/env/environment.h"

namespace rondo::env {

// Place of one `rondo run` among those that a scheduler started, one on each host of the job.
struct LauncherPlace {
  int num_nodes = 1;        // launchers, and hosts
  int node_rank = 0;        // of this one
  std::string master_addr;  // of host 0; empty where the scheduler does not say
  int master_port = 0;      // see default_port()
  std::string run_id;       // may be empty
  std::string told_by;      // "slurm (SLURM_PROCID)", for messages
};

// Finds out whether srun, mpirun or a slice of TPUs started several launchers, of which this process is one.
// Empty for a launcher that is alone: no scheduler, a job step of one task, a batch script, or a worker of
// another launcher. MASTER_ADDR and MASTER_PORT count where there are several launchers.
//
// Throws UsageError where a host has several launchers, since each would start the processes of the whole
// host, and what discover() throws for variables that contradict each other.
std::optional<LauncherPlace> find_launcher_place(const EnvironmentMap& environment);

// Number of this host in an Indexed Job of Kubernetes (JOB_COMPLETION_INDEX); empty elsewhere. The number of
// hosts is not told.
std::optional<int> kubernetes_node_rank(const EnvironmentMap& environment);

}  // namespace rondo::env
