// PMI (MPICH's and Intel MPI's Hydra, Slurm's pmi2 plug-in) and PMIx.
#include "rondo/env/source.h"

namespace rondo::env {
namespace {

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

// Hydra's proxy on each host hands this to its children; Slurm's own plug-in does not.
bool started_by_hydra(const EnvironmentMap& environment) {
  return lookup(environment, "PMI_RANK").has_value() && lookup(environment, "HYDI_CONTROL_FD").has_value();
}

}  // namespace

const Source pmi_source = {"pmi", read_pmi, started_by_hydra};

}  // namespace rondo::env
