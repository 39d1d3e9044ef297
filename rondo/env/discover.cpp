#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/env/address.h"
#include "rondo/env/identity.h"
#include "rondo/env/roles.h"
#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

constexpr int kTorchPort = 29500;
constexpr const char* kFlagSource = "flag";

// The settings merged so far, with the source of each.
struct Merged {
  Settings settings;
  std::map<Field, std::string> source_of;
  std::vector<std::string> seen;

  void put(Field field, Setting setting, std::string source) {
    settings.put(field, std::move(setting));
    source_of[field] = std::move(source);
  }
  void compute(Field field, long long value, std::string how) {
    put(field, {std::to_string(value), std::move(how), false}, "computed");
  }
  bool has(Field field) const { return settings.find(field) != nullptr; }
  std::optional<int> integer(Field field) const { return settings.integer(field); }
  // Returns "RANK=3", for messages.
  std::string show(Field field) const {
    const Setting* setting = settings.find(field);
    return setting->variable + "=" + setting->value;
  }
};

Settings settings_of(const Overrides& overrides, const InitMethod& method) {
  Settings settings;
  const auto take = [&](Field field, const std::optional<int>& value) {
    if (!value) return;
    const std::string variable = overrides.prefix + to_string(field);
    if (*value < 0) throw UsageError(str(variable, "=", *value, " is negative"));
    settings.set(field, *value, variable);
  };
  take(Field::rank, overrides.rank);
  take(Field::world_size, overrides.world_size);
  take(Field::local_rank, overrides.local_rank);
  take(Field::local_world_size, overrides.local_world_size);
  take(Field::node_rank, overrides.node_rank);
  take(Field::num_nodes, overrides.num_nodes);
  if (overrides.role) settings.set(Field::role, *overrides.role, overrides.prefix + "role");
  if (method.kind == InitMethod::Kind::tcp) {
    // Defaults: an explicit init_method replaces the environment's address and does not contradict it.
    settings.set_default(Field::master_addr, method.host, overrides.prefix + "init_method");
    settings.set_default(Field::master_port, std::to_string(method.port), overrides.prefix + "init_method");
  }
  return settings;
}

// Returns whether the field describes the whole job. Such fields are taken even from a scheduler that
// describes only the launcher.
bool describes_job(Field field) {
  return field == Field::master_addr || field == Field::master_port || field == Field::run_id;
}

void merge(Merged& merged, const Settings& found, const char* source, bool launcher_known) {
  if (!found.empty()) merged.seen.emplace_back(source);
  for (const auto& [field, told] : found) {
    if (launcher_known && !describes_job(field)) continue;
    Setting setting = told;
    if (field == Field::master_addr) setting.value = without_brackets(setting.value);
    const Setting* winner = merged.settings.find(field);
    const bool replaces_guess = winner != nullptr && winner->default_value && !setting.default_value &&
                                merged.source_of[field] != kFlagSource;
    if (winner == nullptr || replaces_guess) {
      merged.put(field, setting, source);
    } else if (!launcher_known && !winner->default_value && !setting.default_value &&
               winner->value != setting.value) {
      throw UsageError(str("two sources disagree about the ", to_string(field),
                           " of this process: ", winner->variable, "=", winner->value, " but ",
                           setting.variable, "=", setting.value, "; unset the one that is wrong"));
    }
  }
}

// Derives missing fields from the others. Derives only values that are certain, because hosts may run
// different numbers of processes.
void compute_missing(Merged& m) {
  const auto known = [&](Field field) { return m.integer(field); };
  if (!known(Field::world_size) && known(Field::num_nodes) && known(Field::local_world_size)) {
    m.compute(Field::world_size,
              static_cast<long long>(*known(Field::num_nodes)) * *known(Field::local_world_size),
              "num_nodes * local_world_size");
  }
  const auto world = known(Field::world_size);
  if (!world) return;
  if (*world == 1) {
    for (const Field field : {Field::rank, Field::local_rank, Field::node_rank}) {
      if (!known(field)) m.compute(field, 0, "world of one process");
    }
    for (const Field field : {Field::local_world_size, Field::num_nodes}) {
      if (!known(field)) m.compute(field, 1, "world of one process");
    }
  }
  if (!known(Field::local_world_size) && known(Field::num_nodes) == 1) {
    m.compute(Field::local_world_size, *world, "world of one host");
  }
  if (!known(Field::local_world_size) && known(Field::num_nodes) == *world) {
    m.compute(Field::local_world_size, 1, "as many hosts as processes");
  }
  const auto per_node = known(Field::local_world_size);
  if (per_node == *world) {
    if (!known(Field::num_nodes)) m.compute(Field::num_nodes, 1, "world of one host");
    if (!known(Field::node_rank)) m.compute(Field::node_rank, 0, "world of one host");
    if (!known(Field::local_rank) && known(Field::rank)) {
      m.compute(Field::local_rank, *known(Field::rank), "world of one host");
    }
    if (!known(Field::rank) && known(Field::local_rank)) {
      m.compute(Field::rank, *known(Field::local_rank), "world of one host");
    }
  }
  const bool even = per_node && known(Field::num_nodes) &&
                    static_cast<long long>(*per_node) * *known(Field::num_nodes) == *world;
  if (even && known(Field::node_rank)) {
    const long long first = static_cast<long long>(*known(Field::node_rank)) * *per_node;
    if (!known(Field::local_rank) && *per_node == 1) m.compute(Field::local_rank, 0, "one process a host");
    if (!known(Field::rank) && known(Field::local_rank)) {
      m.compute(Field::rank, first + *known(Field::local_rank), "node_rank * local_world_size + local_rank");
    }
  }
  if (!known(Field::local_rank) && per_node == 1) m.compute(Field::local_rank, 0, "one process a host");
  if (!known(Field::node_rank) && even && per_node == 1 && known(Field::rank)) {
    m.compute(Field::node_rank, *known(Field::rank), "one process a host");
  }
}

void require_rank_and_world(const Merged& m) {
  // Any of these fields implies a job, so rank and world size are required.
  constexpr std::array place = {Field::rank,       Field::world_size,
                                Field::local_rank, Field::local_world_size,
                                Field::node_rank,  Field::num_nodes};
  std::vector<std::string> given;
  for (const Field field : place) {
    // a single node implies nothing about processes
    const bool one_node = field == Field::num_nodes && m.integer(field) == 1;
    if (!m.has(field) || m.source_of.at(field) == "computed" || one_node) continue;
    const std::string shown = m.show(field);  // one variable may set two fields
    if (std::find(given.begin(), given.end(), shown) == given.end()) given.push_back(shown);
  }
  if (given.empty()) return;
  std::vector<std::string> missing;
  if (!m.has(Field::rank))
    missing.emplace_back("rank (RANK, or srun's SLURM_PROCID, mpirun's OMPI_COMM_WORLD_RANK)");
  if (!m.has(Field::world_size)) {
    const Setting* const node_rank = m.settings.find(Field::node_rank);
    const bool is_pod = node_rank != nullptr && node_rank->variable == "JOB_COMPLETION_INDEX";
    missing.emplace_back(is_pod
                             ? "world size (WORLD_SIZE: an Indexed Job gives its pods their number, but not "
                               "its `completions`)"
                             : "world size (WORLD_SIZE, or srun's SLURM_NTASKS, mpirun's "
                               "OMPI_COMM_WORLD_SIZE)");
  }
  if (missing.empty()) return;
  throw UsageError(str("this process is part of a job (", join(given, ", "), ") but its ",
                       join(missing, " and its "),
                       " is missing; set it, or start the program with `rondo run`"));
}

void require_index_below(const Merged& m, Field index, Field count) {
  const auto i = m.integer(index);
  const auto n = m.integer(count);
  if (n && *n == 0) throw UsageError(str(m.show(count), " must be at least 1"));
  if (i && n && *i >= *n) {
    throw UsageError(str(m.show(index), " is out of range: ", m.show(count), " allows 0 to ", *n - 1));
  }
}

void require_at_most(const Merged& m, Field part, Field whole) {
  const auto p = m.integer(part);
  const auto w = m.integer(whole);
  if (p && w && *p > *w) throw UsageError(str(m.show(part), " is larger than ", m.show(whole)));
}

void check_ranges(const Merged& m) {
  require_index_below(m, Field::rank, Field::world_size);
  require_index_below(m, Field::local_rank, Field::local_world_size);
  require_index_below(m, Field::node_rank, Field::num_nodes);
  require_index_below(m, Field::role_rank, Field::role_world_size);
  require_at_most(m, Field::local_world_size, Field::world_size);
  require_at_most(m, Field::num_nodes, Field::world_size);
  const auto port = m.integer(Field::master_port);
  if (port && (*port < 1 || *port > 65535))
    throw UsageError(str(m.show(Field::master_port), " is not in 1-65535"));
}

void settle_master(Merged& m, const InitMethod& method) {
  const int world = m.integer(Field::world_size).value_or(1);
  if (!m.has(Field::master_addr)) {
    const bool one_host = world == 1 || m.integer(Field::local_world_size) == world;
    if (one_host) {
      m.put(Field::master_addr, {"127.0.0.1", "world of one host", false}, "computed");
    } else if (method.kind == InitMethod::Kind::environment) {
      throw UsageError(
          str("the address of rank 0 is missing (", m.show(Field::world_size),
              "): set MASTER_ADDR to the name of its host, or start the program with `rondo run`"));
    }
  }
  if (!m.has(Field::master_port)) {
    const Setting* run = m.settings.find(Field::run_id);
    m.compute(Field::master_port, default_port(run == nullptr ? "" : run->value),
              run == nullptr ? "default" : "computed from " + run->variable);
  }
}

Identity to_identity(const Merged& m, const Overrides& overrides) {
  const auto text = [&](Field field, const std::string& otherwise) {
    const Setting* setting = m.settings.find(field);
    return setting == nullptr ? otherwise : setting->value;
  };
  Identity identity;
  identity.rank = m.integer(Field::rank).value_or(0);
  identity.world_size = m.integer(Field::world_size).value_or(1);
  identity.local_rank = m.integer(Field::local_rank);
  identity.local_world_size = m.integer(Field::local_world_size);
  identity.node_rank = m.integer(Field::node_rank);
  identity.num_nodes = m.integer(Field::num_nodes);
  identity.role = text(Field::role, "default");
  identity.role_rank = m.integer(Field::role_rank).value_or(identity.rank);
  identity.role_world_size = m.integer(Field::role_world_size).value_or(identity.world_size);
  identity.num_ps = m.integer(Field::num_ps).value_or(0);
  identity.host = overrides.host;
  identity.master_addr = text(Field::master_addr, "");
  identity.master_port = m.integer(Field::master_port).value_or(kTorchPort);
  identity.run_id = text(Field::run_id, "");
  identity.restart_count = m.integer(Field::restart_count).value_or(0);
  identity.sources_seen = m.seen;
  for (const auto& [field, setting] : m.settings)
    identity.origins[field] = {m.source_of.at(field), setting.variable};
  return identity;
}

std::string launcher_of(const Merged& m, const EnvironmentMap& environment) {
  for (const Field field : {Field::rank, Field::local_rank, Field::world_size}) {
    const auto found = m.source_of.find(field);
    if (found == m.source_of.end() || found->second == "computed") continue;
    if (found->second != "torchrun") return found->second;
    if (lookup(environment, "RONDO_LAUNCHER")) return "rondo";
    return lookup(environment, "TORCHELASTIC_RUN_ID") ? "torchrun" : "environment";
  }
  return "none";
}

}  // namespace

std::string Identity::origin(Field field) const {
  const auto found = origins.find(field);
  return found == origins.end() ? "default" : found->second.variable;
}

int default_port(const std::string& run_id) {
  if (run_id.empty()) return kTorchPort;
  std::uint32_t hash = 2166136261U;  // FNV-1a: every rank computes the same value
  for (const char c : run_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return 15000 + static_cast<int>(hash % 10000U);  // below the kernel's range of ephemeral ports
}

Identity discover(const EnvironmentMap& environment, const Overrides& overrides) {
  const InitMethod method = parse_init_method(overrides.init_method);
  Merged merged;
  merge(merged, settings_of(overrides, method), kFlagSource, false);
  bool launcher_known = false;
  for (const Source& source : sources()) {
    merge(merged, source.read(environment, merged.settings), source.name, launcher_known);
    launcher_known = launcher_known ||
                     (source.started_this_process != nullptr && source.started_this_process(environment));
  }
  compute_missing(merged);
  require_rank_and_world(merged);
  if (!merged.has(Field::world_size)) {
    merged.compute(Field::world_size, 1, "no launcher");
    compute_missing(merged);
  }
  check_ranges(merged);
  settle_master(merged, method);
  Identity identity = to_identity(merged, overrides);
  identity.launcher = launcher_of(merged, environment);
  return identity;
}

bool is_one_of_several(const EnvironmentMap& environment) {
  if (started_by_launcher(environment)) return true;
  const Identity self = discover(environment);
  require_served_role(self);
  return self.world_size > 1;
}

Identity discover_process(Overrides overrides) {
  if (overrides.host.empty()) overrides.host = host_name();
  return discover(process_environment(), overrides);
}

}  // namespace rondo::env
