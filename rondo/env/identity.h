#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/env/environment.h"
#include "rondo/env/field.h"

namespace rondo::env {

// Where a value was found: "SLURM_PROCID" from source "slurm"; for a value computed from others the variable
// says how ("world of one host").
struct Origin {
  std::string source;    // "slurm", "flag", ...
  std::string variable;  // the environment variable, or how it was computed
};

// Who this process is in its job. What no launcher can leave out is a plain value; what some launchers do not
// tell is optional, and rondo::init finds it out by comparing host names.
struct Identity {
  int rank = 0;                         // from 0 to world_size - 1
  int world_size = 1;                   // processes of the job
  std::optional<int> local_rank;        // among this host's processes
  std::optional<int> local_world_size;  // processes of this job on this host
  std::optional<int> node_rank;         // number of this host
  std::optional<int> num_nodes;         // hosts of the job
  std::string role = "default";         // "worker", "ps", ...; torchrun's --role
  int role_rank = 0;                    // among the processes of this role
  int role_world_size = 1;              // processes of this role
  int num_ps = 0;                       // parameter servers among the ranks, as TF_CONFIG lists them
  std::string host;                     // name of this host
  std::string master_addr;              // where rank 0 listens; empty only when init_method is not env://
  int master_port = 29500;              // see default_port()
  std::string run_id;             // the same on every rank of a job and different between jobs; may be empty
  int restart_count = 0;          // how often the job's workers have been started again
  std::string launcher = "none";  // the source that gave the rank: "flag", "rondo", "torchrun", "slurm", ...
  std::vector<std::string> sources_seen;  // every source that said anything, highest precedence first
  std::map<Field, Origin> origins;        // of each field that was found or computed

  // "RANK", "SLURM_PROCID", ...; "default" when nothing gave the field.
  std::string origin(Field field) const;
};

// What the caller was told outside the environment: command-line flags or fields of rondo::InitOptions. They
// stand above every environment variable.
struct Overrides {
  // Each as the field of this name in Identity; empty: not told.
  std::optional<int> rank;
  std::optional<int> world_size;        // likewise
  std::optional<int> local_rank;        // likewise
  std::optional<int> local_world_size;  // likewise
  std::optional<int> node_rank;         // likewise
  std::optional<int> num_nodes;         // likewise
  std::optional<std::string> role;      // likewise
  // "env://", "file:///path" or "tcp://host:port"; tcp:// gives the master address, and then MASTER_ADDR and
  // MASTER_PORT are not consulted.
  std::string init_method = "env://";
  std::string host;  // empty: not known
  // How errors spell these fields: "InitOptions." gives "InitOptions.rank", "--" gives "--rank".
  std::string prefix = "InitOptions.";
};

// Finds out who this process is, from (highest first) `overrides`, PET_*, RANK/WORLD_SIZE/..., Open MPI, PMI
// and PMIx, Slurm, JOB_COMPLETION_INDEX, a TPU slice and TF_CONFIG. What one source leaves out the next fills
// in. With no source at all: rank 0 of 1. Pure: reads nothing but its arguments; any thread.
//
// Throws UsageError when two sources disagree about a field (naming both variables and values), when a value
// is malformed or out of range, and when something needed is missing (naming it and the variables that would
// give it). What a launcher sets for the processes it starts wins over what describes the launcher itself:
// rondo run and torchrun over PET_* and every scheduler, mpirun (recognised by PMIX_NAMESPACE) and Hydra
// (HYDI_CONTROL_FD) over Slurm and what stands below.
Identity discover(const EnvironmentMap& environment, const Overrides& overrides = {});

// The same for this process: its environment, and its host name where `overrides` has none.
Identity discover_process(Overrides overrides = {});

// Whether a launcher or a scheduler has started this process as one rank of several, so that a program that
// starts its own ranks is not to. Throws as discover(), and as require_served_role() for a role that no rank
// has.
bool is_one_of_several(const EnvironmentMap& environment);

// Port for a job that was given none: 29500, PyTorch's, or with a `run_id` one of 15000-24999 computed from
// it, so that two jobs of a scheduler that share a host do not meet.
int default_port(const std::string& run_id);

}  // namespace rondo::env
