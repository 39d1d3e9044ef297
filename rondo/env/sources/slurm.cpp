// Slurm's srun: https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/node_list.h"
#include "rondo/env/slurm_job.h"
#include "rondo/env/source.h"

namespace rondo::env {
namespace {

// A variable and its value.
struct Variable {
  std::string name;
  std::optional<std::string> value;
  bool is_of_step = false;

  std::string show() const { return str(name, "=", value.value_or("")); }
};

// A job step's variable where there is one, else the job's.
Variable first_set(const EnvironmentMap& environment, std::string_view step, std::string_view job) {
  if (auto value = lookup(environment, step)) return {std::string(step), std::move(value), true};
  return {std::string(job), lookup(environment, job), false};
}

// The hosts of the job, under Slurm's present name for them or its former one.
Variable list_of_job(const EnvironmentMap& environment) {
  const bool is_former = !lookup(environment, "SLURM_JOB_NODELIST") && lookup(environment, "SLURM_NODELIST");
  const std::string name = is_former ? "SLURM_NODELIST" : "SLURM_JOB_NODELIST";
  return {name, lookup(environment, name), false};
}

// The variables that say how many tasks run on which hosts.
struct Layout {
  explicit Layout(const EnvironmentMap& environment)
      : tasks(first_set(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
        nodes(first_set(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")),
        tasks_per_node(first_set(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")),
        node_list(first_set(environment, "SLURM_STEP_NODELIST", list_of_job(environment).name)) {
    if (tasks_per_node.value) counts = expand_tasks_per_node(*tasks_per_node.value, named(tasks_per_node));
    if (node_list.value) hosts = expand_node_list(*node_list.value, named(node_list));
  }

  static std::string named(const Variable& variable) { return str("environment variable ", variable.name); }

  Variable tasks, nodes, tasks_per_node, node_list;
  std::vector<int> counts;         // tasks of each host
  std::vector<std::string> hosts;  // by name
};

// Throws UsageError when `list`, which describes `found` of `what`, contradicts `count`. Variables of a step
// and of its job may differ.
void require_equal(const EnvironmentMap& environment, const Variable& count, const Variable& list,
                   long long found, const char* what) {
  if (!count.value || !list.value || count.is_of_step != list.is_of_step) return;
  if (integer_variable(environment, count.name) == found) return;
  throw UsageError(str("Slurm's variables contradict each other: ", count.show(), " but ", list.show(),
                       " describes ", found, " ", what, "; unset the one that is wrong"));
}

void check(const EnvironmentMap& environment, const Layout& layout) {
  const auto hosts = static_cast<long long>(layout.hosts.size());
  const auto counted_hosts = static_cast<long long>(layout.counts.size());
  const long long tasks = std::accumulate(layout.counts.begin(), layout.counts.end(), 0LL);
  require_equal(environment, layout.nodes, layout.node_list, hosts, "hosts");
  require_equal(environment, layout.nodes, layout.tasks_per_node, counted_hosts, "hosts");
  require_equal(environment, layout.tasks, layout.tasks_per_node, tasks, "tasks");
}

// The host of rank 0, and a name for the job that no other job has.
void set_meeting_place(Settings& settings, const EnvironmentMap& environment,
                       const std::vector<std::string>& hosts, const std::string& list, std::string step) {
  if (!hosts.empty()) settings.set_default(Field::master_addr, hosts.front(), "first host of " + list);
  if (const auto job = lookup(environment, "SLURM_JOB_ID")) {
    if (!step.empty()) step.insert(0, ".");
    settings.set_default(Field::run_id, str("slurm-", *job, step),
                         step.empty() ? "SLURM_JOB_ID" : "SLURM_JOB_ID and SLURM_STEP_ID");
  }
}

// Whether mpirun or Hydra started this process: inside a job the variables of a step are then those of its
// daemon on this host.
bool has_launcher_of_mpi(const EnvironmentMap& environment) {
  return lookup(environment, "OMPI_COMM_WORLD_RANK") || lookup(environment, "HYDI_CONTROL_FD");
}

Settings read_slurm(const EnvironmentMap& environment, const Settings& higher) {
  Settings settings;
  const bool has_mpi = has_launcher_of_mpi(environment);
  if (has_mpi || !is_slurm_task(environment)) {
    // A batch script or a shell: one process, unless another launcher says that it is one of several.
    const bool is_one_of_several = higher.integer(Field::world_size).value_or(1) > 1;
    const Variable list = list_of_job(environment);
    if (is_one_of_several && list.value) {
      set_meeting_place(settings, environment, expand_node_list(*list.value, Layout::named(list)), list.name,
                        "");
    }
    return settings;
  }
  const Layout layout(environment);
  check(environment, layout);
  settings.take_integer(Field::rank, environment, "SLURM_PROCID");
  settings.take_integer(Field::world_size, environment, layout.tasks.name);
  settings.take_integer(Field::local_rank, environment, "SLURM_LOCALID");
  settings.take_integer(Field::node_rank, environment, "SLURM_NODEID");
  settings.take_integer(Field::num_nodes, environment, layout.nodes.name);
  const auto node = settings.integer(Field::node_rank);
  const auto world = settings.integer(Field::world_size);
  // The job's list describes the allocation, not a step of fewer tasks: it says nothing about this host then.
  const bool is_of_this_step =
      !world || std::accumulate(layout.counts.begin(), layout.counts.end(), 0LL) == *world;
  if (node && is_of_this_step && *node < static_cast<int>(layout.counts.size())) {
    settings.set(Field::local_world_size, layout.counts[static_cast<std::size_t>(*node)],
                 layout.tasks_per_node.name);
  }
  set_meeting_place(settings, environment, layout.hosts, layout.node_list.name,
                    lookup(environment, "SLURM_STEP_ID").value_or(""));
  settings.take_integer(Field::restart_count, environment, "SLURM_RESTART_COUNT");
  return settings;
}

}  // namespace

const Source slurm_source = {"slurm", read_slurm, nullptr};

}  // namespace rondo::env
