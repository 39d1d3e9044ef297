#include "rondo/env/launcher_place.h"

#include <algorithm>
#include <array>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/identity.h"
#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

// Prefixes of variables of schedulers that start one process on every host. RANK, PET_* and TF_CONFIG are
// excluded: they are inputs or outputs of launchers.
constexpr std::array kOfSchedulers = {"SLURM_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "MPI_LOCAL", "HYDI_",
                                      "TPU_"};

// Returns the scheduler's variables, with MASTER_ADDR and MASTER_PORT; empty without a scheduler.
EnvironmentMap schedulers_part(const EnvironmentMap& environment) {
  EnvironmentMap part;
  for (const auto& [variable, value] : environment) {
    const bool is_of_scheduler = std::any_of(
        kOfSchedulers.begin(), kOfSchedulers.end(),
        [&, name = std::string_view(variable)](const char* start) { return name.starts_with(start); });
    if (is_of_scheduler) part.emplace(variable, value);
  }
  if (part.empty()) return part;
  for (const char* variable : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (const auto value = lookup(environment, variable)) part.emplace(variable, *value);
  }
  return part;
}

}  // namespace

std::optional<LauncherPlace> find_launcher_place(const EnvironmentMap& environment) {
  if (started_by_launcher(environment)) return std::nullopt;
  const EnvironmentMap told = schedulers_part(environment);
  if (told.empty()) return std::nullopt;
  Overrides overrides;
  overrides.init_method = "file:///";  // host 0's address may be a flag of the launcher
  const Identity self = discover(told, overrides);
  if (self.world_size == 1) return std::nullopt;
  const std::string launcher_source = str(self.launcher, " (", self.origin(Field::rank), "=", self.rank, ", ",
                                          self.origin(Field::world_size), "=", self.world_size, ")");
  const bool is_only_one =
      self.local_world_size == 1 && self.num_nodes.value_or(self.world_size) == self.world_size;
  if (!is_only_one) {
    throw UsageError(str(
        launcher_source, " has started ", self.world_size, " launchers, and ",
        self.local_world_size ? str("more than one on a host (", self.origin(Field::local_world_size), "=",
                                    *self.local_world_size, " on this one)")
                              : "how many on each host is not known",
        ": each would start the processes of a whole host. Start one `rondo run` a host (srun "
        "--ntasks-per-node=1, mpirun -N 1), or the program itself without `rondo run`; `--nnodes 1` makes "
        "every launcher a job of its own"));
  }
  LauncherPlace place;
  place.num_nodes = self.world_size;
  place.node_rank = self.rank;
  place.master_addr = self.master_addr;
  place.master_port = self.master_port;
  place.run_id = self.run_id;
  place.launcher_source = launcher_source;
  return place;
}

std::optional<int> kubernetes_node_rank(const EnvironmentMap& environment) {
  return integer_variable(environment, "JOB_COMPLETION_INDEX");
}

}  // namespace rondo::env
