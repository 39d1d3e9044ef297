#pragma once

#include <optional>
#include <string>

#include "rondo/env/environment.h"

namespace rondo::env {

// Place of one `rondo run` among those that a scheduler started, one on each host of the job.
struct LauncherPlace {
  int num_nodes = 1;            // number of launchers, and of hosts
  int node_rank = 0;            // number of this launcher
  std::string master_addr;      // address of host 0; empty if the scheduler does not provide it
  int master_port = 0;          // see default_port()
  std::string run_id;           // may be empty
  std::string launcher_source;  // "slurm (SLURM_PROCID)", for messages
};

// Determines whether srun, mpirun or a TPU slice started several launchers, of which this process is one.
// Empty if the launcher is alone: no scheduler, a job step of one task, a batch script, or a worker of
// another launcher. MASTER_ADDR and MASTER_PORT are used if there are several launchers.
//
// Throws UsageError if a host has several launchers, because each would start the processes of the whole
// host. Also throws like discover() for contradictory variables.
std::optional<LauncherPlace> find_launcher_place(const EnvironmentMap& environment);

// Returns the number of this host in an Indexed Job of Kubernetes (JOB_COMPLETION_INDEX); empty elsewhere.
// Kubernetes does not provide the number of hosts.
std::optional<int> kubernetes_node_rank(const EnvironmentMap& environment);

}  // namespace rondo::env
