// TF_CONFIG, TensorFlow's description of a cluster:
// {"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...]},
// "task": {"type": "worker", "index": 1}}
// Ranks are assigned in the order chief (or master), worker, ps. An evaluator is outside the cluster: a world
// of one process.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/env/address.h"
#include "rondo/env/cluster.h"
#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

using Json = nlohmann::json;
constexpr const char* kVariable = "TF_CONFIG";
constexpr std::uint64_t kMostTasks = 1'000'000;
// Roles whose members are ranks, in rank order.
constexpr std::array kRanks = {"chief", "master", "worker", "ps"};
constexpr const char* kEvaluator = "evaluator";

struct Task {
  std::string type;
  int index = 0;
  std::string address;  // "host:port"
};

[[noreturn]] void malformed(const std::string& what) {
  throw UsageError(
      str("environment variable TF_CONFIG: ", what,
          R"(; expected {"cluster":{"worker":["host:port",...]},"task":{"type":"worker","index":0}})"));
}

void require_known_role(const std::string& role, const char* where) {
  if (role == kEvaluator || std::find(kRanks.begin(), kRanks.end(), role) != kRanks.end()) return;
  throw UsageError(str("environment variable TF_CONFIG: ", where, " names the role ", printable(role),
                       ", which rondo does not know; it knows ", join(kRanks, ", "), " and ", kEvaluator));
}

std::vector<Task> tasks_in_rank_order(const Json& cluster) {
  std::vector<Task> tasks;
  for (const char* type : kRanks) {
    if (!cluster.contains(type)) continue;
    if (!cluster[type].is_array()) malformed(str("cluster.", type, " is not a list"));
    int index = 0;
    for (const Json& address : cluster[type]) {
      if (!address.is_string()) malformed(str("cluster.", type, "[", index, "] is not a text"));
      tasks.push_back({type, index++, address.get<std::string>()});
    }
  }
  return tasks;
}

std::string host_of(const std::string& address) { return split_host_port(address).host; }

// Sets the local and node fields from the host names in the cluster.
void set_hosts(Settings& settings, const std::vector<Task>& tasks, std::size_t rank) {
  const std::string host = host_of(tasks[rank].address);
  int local_rank = 0;
  int local_world_size = 0;
  std::vector<std::string> hosts;
  for (std::size_t other = 0; other < tasks.size(); ++other) {
    const std::string other_host = host_of(tasks[other].address);
    if (std::find(hosts.begin(), hosts.end(), other_host) == hosts.end()) hosts.push_back(other_host);
    if (other_host != host) continue;
    ++local_world_size;
    if (other < rank) ++local_rank;
  }
  settings.set(Field::local_rank, local_rank, kVariable);
  settings.set(Field::local_world_size, local_world_size, kVariable);
  settings.set(Field::node_rank, std::find(hosts.begin(), hosts.end(), host) - hosts.begin(), kVariable);
  settings.set(Field::num_nodes, static_cast<long long>(hosts.size()), kVariable);
}

void set_master(Settings& settings, const std::string& address) {
  const HostPort parts = split_host_port(address);
  settings.set_default(Field::master_addr, parts.host, "first task of TF_CONFIG");
  if (parts.port.empty()) return;
  const long long port = parse_integer(parts.port, "environment variable TF_CONFIG: port of " + address);
  settings.set_default(Field::master_port, std::to_string(port), "first task of TF_CONFIG");
}

// The members of the cluster, and the task of this process.
struct Config {
  Json cluster;
  std::string type;
  int index = 0;
};

// Returns the task's index: a JSON number, or a string as TensorFlow's parser accepts and some operators
// write.
int index_of(const Json& task) {
  const Json index = task.value("index", Json());
  std::uint64_t number = 0;
  if (index.is_number_unsigned()) {
    number = index.get<std::uint64_t>();
  } else if (index.is_string()) {
    const auto text = index.get<std::string>();
    const long long parsed = parse_integer(trim(text), "environment variable TF_CONFIG: task.index");
    if (parsed < 0) malformed(str("task.index ", printable(text), " is negative"));
    number = static_cast<std::uint64_t>(parsed);
  } else {
    malformed(index.is_null() ? "task.index is missing" : str("task.index ", index.dump(), " is no number"));
  }
  if (number > kMostTasks) malformed(str("task.index is above ", kMostTasks));
  return static_cast<int>(number);
}

// Parses TF_CONFIG; empty for a single process, as in TensorFlow.
std::optional<Config> parse_config(const EnvironmentMap& environment) {
  const auto text = lookup(environment, kVariable);
  if (!text) return std::nullopt;
  Json config;
  try {
    config = parse_json_strict(*text, "its text");
  } catch (const DataError& error) {
    malformed(error.what());
  }
  if (!config.is_object()) malformed("it is not a JSON object");
  if (!config.contains("cluster") || !config.contains("task")) return std::nullopt;
  const Json& task = config["task"];
  if (!config["cluster"].is_object()) malformed("cluster is not an object");
  if (!task.is_object() || !task.contains("type") || !task["type"].is_string())
    malformed("task.type is missing");
  const int index = index_of(task);
  for (const auto& [role, members] : config["cluster"].items()) require_known_role(role, "cluster");
  require_known_role(task["type"].get<std::string>(), "task.type");
  return Config{config["cluster"], task["type"].get<std::string>(), index};
}

std::vector<Task>::const_iterator task_of(const std::vector<Task>& tasks, const Config& config) {
  const auto self = std::find_if(tasks.begin(), tasks.end(), [&](const Task& t) {
    return t.type == config.type && t.index == config.index;
  });
  if (self == tasks.end()) malformed(str("task ", config.type, " ", config.index, " is not in the cluster"));
  return self;
}

Settings read_tf_config(const EnvironmentMap& environment, const Settings&) {
  Settings settings;
  const auto config = parse_config(environment);
  if (!config) return settings;
  const Json& cluster = config->cluster;
  const std::string& type = config->type;
  const int index = config->index;

  settings.set(Field::role, type, kVariable);
  settings.set(Field::role_rank, index, kVariable);
  if (type == kEvaluator) {
    const Json evaluators = cluster.value(kEvaluator, Json::array());
    settings.set(Field::role_world_size,
                 std::max<long long>(index + 1, static_cast<long long>(evaluators.size())), kVariable);
    settings.set(Field::rank, 0, kVariable);
    settings.set(Field::world_size, 1, kVariable);
    return settings;
  }
  const std::vector<Task> tasks = tasks_in_rank_order(cluster);
  const auto self = task_of(tasks, *config);
  const auto of_this_type =
      std::count_if(tasks.begin(), tasks.end(), [&](const Task& t) { return t.type == type; });
  settings.set(Field::role_world_size, of_this_type, kVariable);
  settings.set(Field::num_ps,
               std::count_if(tasks.begin(), tasks.end(), [](const Task& t) { return t.type == "ps"; }),
               kVariable);
  settings.set(Field::rank, self - tasks.begin(), kVariable);
  settings.set(Field::world_size, static_cast<long long>(tasks.size()), kVariable);
  set_hosts(settings, tasks, static_cast<std::size_t>(self - tasks.begin()));
  set_master(settings, tasks.front().address);
  return settings;
}

}  // namespace

std::optional<Cluster> read_workers(const EnvironmentMap& environment) {
  const auto config = parse_config(environment);
  if (!config) return std::nullopt;
  if (config->type == kEvaluator) {
    throw UsageError(str(kVariable, " gives this process the role evaluator (index ", config->index,
                         "), which takes no part in training; `rondo train` evaluates checkpoints in it"));
  }
  const std::vector<Task> tasks = tasks_in_rank_order(config->cluster);
  const auto self = task_of(tasks, *config);
  Cluster cluster;
  std::map<std::string, const Task*> by_address;
  for (const Task& task : tasks) {
    const auto [other, is_new] = by_address.emplace(task.address, &task);
    if (!is_new) {
      malformed(str("tasks ", other->second->type, " ", other->second->index, " and ", task.type, " ",
                    task.index, " have the same address ", task.address));
    }
    (task.type == "ps" ? cluster.servers : cluster.workers).push_back(task.address);
  }
  cluster.is_server = self->type == "ps";
  if (cluster.workers.empty()) malformed("the roles chief and worker have no members, but servers have");
  // Ranks are ordered: workers, then servers.
  cluster.index = static_cast<int>(self - tasks.begin()) -
                  (cluster.is_server ? static_cast<int>(cluster.workers.size()) : 0);
  return cluster;
}

std::optional<Cluster> read_cluster(const EnvironmentMap& environment) {
  std::optional<Cluster> cluster = read_workers(environment);
  if (cluster && cluster->servers.empty())
    malformed("the role ps has no members, but parameter servers are asked for");
  return cluster;
}

bool is_evaluator(const EnvironmentMap& environment) {
  const auto config = parse_config(environment);
  return config && config->type == kEvaluator;
}

bool has_evaluator(const EnvironmentMap& environment) {
  if (lookup(environment, kEvaluatorVariable)) return true;
  const auto config = parse_config(environment);
  return config && (config->type == kEvaluator || !config->cluster.value(kEvaluator, Json::array()).empty());
}

const Source tf_config_source = {"tf_config", read_tf_config, nullptr};

}  // namespace rondo::env
