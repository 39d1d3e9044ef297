#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/env/environment.h"
#include "rondo/env/field.h"

namespace rondo::env {

// Origin of a value: variable "SLURM_PROCID" from source "slurm". For a derived value, `variable` explains
// the derivation ("world of one host").
struct Origin {
  std::string source;    // "slurm", "flag", ...
  std::string variable;  // environment variable, or derivation
};

// Identity of this process in its job. Fields that every launcher provides are plain values. Fields that some
// launchers omit are optional; rondo::init then derives them by comparing host names.
struct Identity {
  int rank = 0;                         // from 0 to world_size - 1
  int world_size = 1;                   // number of processes of the job
  std::optional<int> local_rank;        // rank among this host's processes
  std::optional<int> local_world_size;  // number of this job's processes on this host
  std::optional<int> node_rank;         // number of this host
  std::optional<int> num_nodes;         // number of hosts of the job
  std::string role = "default";         // "worker", "ps", ...; torchrun's --role
  int role_rank = 0;                    // rank among the processes of this role
  int role_world_size = 1;              // number of processes with this role
  int num_ps = 0;                       // number of parameter servers among the ranks, from TF_CONFIG
  std::string host;                     // name of this host
  std::string master_addr;        // host on which rank 0 listens; empty only if init_method is not env://
  int master_port = 29500;        // default: see default_port()
  std::string run_id;             // equal on all ranks of a job, different between jobs; may be empty
  int restart_count = 0;          // number of restarts of the job's workers
  std::string launcher = "none";  // source of the rank: "flag", "rondo", "torchrun", "slurm", ...
  std::vector<std::string> sources_seen;  // sources that provided anything, highest precedence first
  std::map<Field, Origin> origins;        // origin of each field that was found or derived

  // Returns the variable of a field: "RANK", "SLURM_PROCID", ...; "default" if no source provided it.
  std::string origin(Field field) const;
};

// Values given outside the environment: command-line flags or fields of rondo::InitOptions. They take
// precedence over every environment variable.
struct Overrides {
  // Fields of the same name in Identity; empty: not given.
  std::optional<int> rank;
  std::optional<int> world_size;        // empty: not given
  std::optional<int> local_rank;        // empty: not given
  std::optional<int> local_world_size;  // empty: not given
  std::optional<int> node_rank;         // empty: not given
  std::optional<int> num_nodes;         // empty: not given
  std::optional<std::string> role;      // empty: not given
  // Rendezvous method: "env://", "file:///path" or "tcp://host:port". With tcp:// the master address comes
  // from here, and MASTER_ADDR and MASTER_PORT are ignored.
  std::string init_method = "env://";
  std::string host;  // empty: not known
  // Prefix of these fields in errors: "InitOptions." gives "InitOptions.rank", "--" gives "--rank".
  std::string prefix = "InitOptions.";
};

// Determines the identity of this process from (highest precedence first) `overrides`, PET_*,
// RANK/WORLD_SIZE/..., Open MPI, PMI and PMIx, Slurm, JOB_COMPLETION_INDEX, a TPU slice and TF_CONFIG. A
// lower source fills in fields that the higher ones lack. Without any source: rank 0 of 1. Reads only its
// arguments; thread-safe.
//
// Throws UsageError if two sources disagree about a field, naming both variables and values. Throws
// UsageError also for a malformed or out-of-range value, and for a missing required field, naming the
// variables that would provide it.
//
// Variables that a launcher sets for its child processes take precedence over variables that describe the
// launcher itself: rondo run and torchrun over PET_* and every scheduler, mpirun (recognised by
// PMIX_NAMESPACE) and Hydra (HYDI_CONTROL_FD) over Slurm and the sources below it.
Identity discover(const EnvironmentMap& environment, const Overrides& overrides = {});

// Calls discover() with this process's environment, and its host name if `overrides` has none.
Identity discover_process(Overrides overrides = {});

// Returns whether a launcher or scheduler started this process as one rank of several. A program that starts
// its own ranks must not do so then. Throws like discover(), and like require_served_role() for a role that
// no rank has.
bool is_one_of_several(const EnvironmentMap& environment);

// Returns the port for a job without a given port: 29500, PyTorch's default. With a `run_id`, returns a port
// in 15000-24999 computed from it, so that two jobs of a scheduler on one host do not collide.
int default_port(const std::string& run_id);

}  // namespace rondo::env
