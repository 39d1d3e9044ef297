// TF_CONFIG, TensorFlow's description of a cluster:
//   {"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...]}, "task": {"type": "worker", "index":
//   1}}
// Ranks are given in the order chief (or master), worker, ps. An evaluator stands outside the cluster: one
// process.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/source.h"

namespace rondo::env {
namespace {

using Json = nlohmann::json;
constexpr const char* kVariable = "TF_CONFIG";

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

std::vector<Task> tasks_in_rank_order(const Json& cluster) {
  std::vector<Task> tasks;
  for (const char* type : {"chief", "master", "worker", "ps"}) {
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

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

// Where the cluster's tasks run, by the host names in it.
void claim_hosts(Claims& claims, const std::vector<Task>& tasks, std::size_t rank) {
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
  claims.set(Field::local_rank, local_rank, kVariable);
  claims.set(Field::local_world_size, local_world_size, kVariable);
  claims.set(Field::node_rank, std::find(hosts.begin(), hosts.end(), host) - hosts.begin(), kVariable);
  claims.set(Field::num_nodes, static_cast<long long>(hosts.size()), kVariable);
}

void claim_master(Claims& claims, const std::string& address) {
  const std::size_t colon = address.rfind(':');
  claims.set_fallback(Field::master_addr, host_of(address), "first task of TF_CONFIG");
  if (colon == std::string::npos) return;
  const long long port =
      parse_integer(address.substr(colon + 1), "environment variable TF_CONFIG: port of " + address);
  claims.set_fallback(Field::master_port, std::to_string(port), "first task of TF_CONFIG");
}

Claims read(const EnvironmentMap& environment, const Claims&) {
  Claims claims;
  const auto text = lookup(environment, kVariable);
  if (!text) return claims;
  const Json config = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) malformed("it is not a JSON object");
  if (!config.contains("cluster") || !config.contains("task"))
    return claims;  // one process, as in TensorFlow
  const Json& cluster = config["cluster"];
  const Json& task = config["task"];
  if (!cluster.is_object()) malformed("cluster is not an object");
  if (!task.is_object() || !task.contains("type") || !task["type"].is_string())
    malformed("task.type is missing");
  if (!task.contains("index") || !task["index"].is_number_unsigned()) malformed("task.index is missing");
  const auto type = task["type"].get<std::string>();
  const int index = task["index"].get<int>();

  claims.set(Field::role, type, kVariable);
  claims.set(Field::role_rank, index, kVariable);
  if (type == "evaluator") {
    const Json evaluators = cluster.value("evaluator", Json::array());
    claims.set(Field::role_world_size,
               std::max<long long>(index + 1, static_cast<long long>(evaluators.size())), kVariable);
    claims.set(Field::rank, 0, kVariable);
    claims.set(Field::world_size, 1, kVariable);
    return claims;
  }
  const std::vector<Task> tasks = tasks_in_rank_order(cluster);
  const auto self = std::find_if(tasks.begin(), tasks.end(),
                                 [&](const Task& t) { return t.type == type && t.index == index; });
  if (self == tasks.end()) malformed(str("task ", type, " ", index, " is not in the cluster"));
  const auto of_this_type =
      std::count_if(tasks.begin(), tasks.end(), [&](const Task& t) { return t.type == type; });
  claims.set(Field::role_world_size, of_this_type, kVariable);
  claims.set(Field::rank, self - tasks.begin(), kVariable);
  claims.set(Field::world_size, static_cast<long long>(tasks.size()), kVariable);
  claim_hosts(claims, tasks, static_cast<std::size_t>(self - tasks.begin()));
  claim_master(claims, tasks.front().address);
  return claims;
}

}  // namespace

const Source tf_config_source = {"tf_config", read, nullptr};

}  // namespace rondo::env
