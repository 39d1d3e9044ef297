#include "rondo/base/text.h"
#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

// Reads RANK, WORLD_SIZE and the other variables that torchrun and `rondo run` set and that users export by
// hand.
Settings read_torchrun(const EnvironmentMap& environment, const Settings&) {
  Settings settings;
  settings.take_integer(Field::rank, environment, "RANK");
  settings.take_integer(Field::world_size, environment, "WORLD_SIZE");
  settings.take_integer(Field::local_rank, environment, "LOCAL_RANK");
  settings.take_integer(Field::local_world_size, environment, "LOCAL_WORLD_SIZE");
  settings.take_integer(Field::node_rank, environment, "GROUP_RANK");
  settings.take_integer(Field::num_nodes, environment, "GROUP_WORLD_SIZE");
  settings.take_text(Field::role, environment, "ROLE_NAME");
  settings.take_integer(Field::role_rank, environment, "ROLE_RANK");
  settings.take_integer(Field::role_world_size, environment, "ROLE_WORLD_SIZE");
  settings.take_text(Field::master_addr, environment, "MASTER_ADDR");
  settings.take_integer(Field::master_port, environment, "MASTER_PORT");
  settings.take_text(Field::run_id, environment, "TORCHELASTIC_RUN_ID");
  settings.take_integer(Field::restart_count, environment, "TORCHELASTIC_RESTART_COUNT");
  return settings;
}

}  // namespace

const Source torchrun_source = {"torchrun", read_torchrun, started_by_launcher};

namespace {

// Returns the value of a flag that may also be a range ("1:4") or a word ("auto"). Empty for those, because
// they do not determine this process's place.
std::optional<int> fixed_count(const EnvironmentMap& environment, std::string_view variable) {
  const auto text = lookup(environment, variable);
  if (!text) return std::nullopt;
  if (*text == "auto" || *text == "cpu" || *text == "gpu") return std::nullopt;
  const std::vector<std::string> bounds = split(*text, ':');
  if (bounds.size() != 2) return integer_variable(environment, variable);
  const long long least = parse_integer(bounds[0], str("environment variable ", variable));
  const long long most = parse_integer(bounds[1], str("environment variable ", variable));
  if (least != most) return std::nullopt;
  return static_cast<int>(least);
}

// Reads PET_<FLAG>: torchrun's flags as environment variables, which Kubeflow Trainer v2 sets in every pod.
// They describe a host, not a process. A process without a launcher is its host's only process if
// PET_NPROC_PER_NODE is 1.
Settings read_pet(const EnvironmentMap& environment, const Settings&) {
  Settings settings;
  // In a worker, these variables are the launcher's input and are ignored; the launcher's output is RANK,
  // WORLD_SIZE and so on.
  if (started_by_launcher(environment)) return settings;

  const auto nodes = fixed_count(environment, "PET_NNODES");
  const auto per_node = fixed_count(environment, "PET_NPROC_PER_NODE");
  if (nodes) settings.set(Field::num_nodes, *nodes, "PET_NNODES");
  if (per_node) settings.set(Field::local_world_size, *per_node, "PET_NPROC_PER_NODE");
  settings.take_integer(Field::node_rank, environment, "PET_NODE_RANK");
  const auto node_rank = settings.integer(Field::node_rank);
  if (nodes && per_node) {
    settings.set(Field::world_size, static_cast<long long>(*nodes) * *per_node,
                 "PET_NNODES * PET_NPROC_PER_NODE");
  }
  if (node_rank && per_node == 1) settings.set(Field::rank, *node_rank, "PET_NODE_RANK");
  settings.take_text(Field::role, environment, "PET_ROLE");
  settings.take_text(Field::master_addr, environment, "PET_MASTER_ADDR");
  settings.take_integer(Field::master_port, environment, "PET_MASTER_PORT");
  return settings;
}

}  // namespace

const Source pet_source = {"pet", read_pet, nullptr};

}  // namespace rondo::env
