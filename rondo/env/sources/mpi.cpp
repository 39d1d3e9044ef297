#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

// Open MPI's mpirun: https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html
Settings read_open_mpi(const EnvironmentMap& environment, const Settings&) {
  Settings settings;
  settings.take_integer(Field::rank, environment, "OMPI_COMM_WORLD_RANK");
  settings.take_integer(Field::world_size, environment, "OMPI_COMM_WORLD_SIZE");
  // OMPI_COMM_WORLD_NODE_RANK is not the node's number: it is the rank of this process on its node across all
  // jobs.
  settings.take_integer(Field::local_rank, environment, "OMPI_COMM_WORLD_NODE_RANK");
  settings.take_integer(Field::local_rank, environment, "OMPI_COMM_WORLD_LOCAL_RANK");
  settings.take_integer(Field::local_world_size, environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!settings.empty()) {
    if (const auto space = lookup(environment, "PMIX_NAMESPACE")) {
      settings.set_default(Field::run_id, *space, "PMIX_NAMESPACE");
    }
  }
  return settings;
}

// srun sets PMIX_* but no OMPI_COMM_WORLD_*; mpirun sets both. Inside a Slurm batch job, the SLURM_*
// variables of such a process describe mpirun's own daemon on the host.
bool started_by_mpirun(const EnvironmentMap& environment) {
  return lookup(environment, "OMPI_COMM_WORLD_RANK").has_value() &&
         lookup(environment, "PMIX_NAMESPACE").has_value();
}

}  // namespace

const Source open_mpi_source = {"open_mpi", read_open_mpi, started_by_mpirun};

namespace {

// PMI (MPICH's and Intel MPI's Hydra, Slurm's pmi2 plug-in) and PMIx.
Settings read_pmi(const EnvironmentMap& environment, const Settings&) {
  Settings settings;
  settings.take_integer(Field::rank, environment, "PMIX_RANK");
  settings.take_integer(Field::rank, environment, "PMI_RANK");
  settings.take_integer(Field::world_size, environment, "PMI_SIZE");
  settings.take_integer(Field::local_rank, environment, "MPI_LOCALRANKID");
  settings.take_integer(Field::local_world_size, environment, "MPI_LOCALNRANKS");
  if (!settings.empty()) {
    if (const auto space = lookup(environment, "PMIX_NAMESPACE")) {
      settings.set_default(Field::run_id, *space, "PMIX_NAMESPACE");
    }
  }
  return settings;
}

// Hydra's proxy on each host passes this variable to its children; Slurm's plug-in does not.
bool started_by_hydra(const EnvironmentMap& environment) {
  return lookup(environment, "PMI_RANK").has_value() && lookup(environment, "HYDI_CONTROL_FD").has_value();
}

}  // namespace

const Source pmi_source = {"pmi", read_pmi, started_by_hydra};

}  // namespace rondo::env
