// Slurm's srun: https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
#include <numeric>

#include "rondo/base/text.h"
#include "rondo/env/node_list.h"
#include "rondo/env/source.h"

namespace rondo::env {
namespace {

// A job step's variable where there is one, else the job's.
std::string first_set(const EnvironmentMap& environment, std::string_view step, std::string_view job) {
  return std::string(lookup(environment, step) ? step : job);
}

void set_tasks_on_this_node(Settings& settings, const EnvironmentMap& environment) {
  const std::string variable = first_set(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const auto text = lookup(environment, variable);
  const auto node = settings.integer(Field::node_rank);
  if (!text || !node) return;
  const std::vector<int> counts = expand_tasks_per_node(*text, str("environment variable ", variable));
  // A batch script's copy may describe the allocation instead of this step; then it says nothing about this
  // host.
  const auto world = settings.integer(Field::world_size);
  const bool of_this_step = !world || std::accumulate(counts.begin(), counts.end(), 0LL) == *world;
  if (of_this_step && *node < static_cast<int>(counts.size())) {
    settings.set(Field::local_world_size, counts[static_cast<std::size_t>(*node)], variable);
  }
}

Settings read_slurm(const EnvironmentMap& environment, const Settings&) {
  Settings settings;
  // Without it this is a shell inside an allocation (salloc), not a task: one process.
  if (!lookup(environment, "SLURM_PROCID")) return settings;

  settings.take_integer(Field::rank, environment, "SLURM_PROCID");
  settings.take_integer(Field::world_size, environment,
                        first_set(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"));
  settings.take_integer(Field::local_rank, environment, "SLURM_LOCALID");
  settings.take_integer(Field::node_rank, environment, "SLURM_NODEID");
  settings.take_integer(Field::num_nodes, environment,
                        first_set(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES"));
  set_tasks_on_this_node(settings, environment);

  const std::string list_variable = first_set(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  if (const auto list = lookup(environment, list_variable)) {
    const std::vector<std::string> hosts =
        expand_node_list(*list, str("environment variable ", list_variable));
    if (!hosts.empty()) {
      settings.set_default(Field::master_addr, hosts.front(), "first host of " + list_variable);
    }
  }
  if (const auto job = lookup(environment, "SLURM_JOB_ID")) {
    const std::string step = lookup(environment, "SLURM_STEP_ID").value_or("batch");
    settings.set_default(Field::run_id, str("slurm-", *job, ".", step), "SLURM_JOB_ID and SLURM_STEP_ID");
  }
  settings.take_integer(Field::restart_count, environment, "SLURM_RESTART_COUNT");
  return settings;
}

}  // namespace

const Source slurm_source = {"slurm", read_slurm, nullptr};

}  // namespace rondo::env
