// A TPU slice: each host has its own number and the names of all hosts
// (https://cloud.google.com/kubernetes-engine/docs/how-to/tpus). Several processes on a host need a launcher.
#include "rondo/env/sources/tpu_slice.h"

#include <cctype>
#include <numeric>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

constexpr const char* kWorker = "TPU_WORKER_ID";
constexpr const char* kHosts = "TPU_WORKER_HOSTNAMES";
constexpr const char* kTopology = "TPU_TOPOLOGY";
constexpr const char* kType = "TPU_ACCELERATOR_TYPE";
constexpr int kLongestAxis = 1 << 16;
constexpr std::size_t kMostAxes = 3;

// Returns the number of chips of an accelerator type: 16 for "v4-32". Empty for an unknown family.
std::optional<long long> chips_of_type(const std::string& type) {
  const std::size_t dash = type.rfind('-');
  if (dash == std::string::npos) return std::nullopt;
  const std::string family = type.substr(0, dash);
  const std::set<std::string> by_cores = {"v2", "v3", "v4", "v5p"}, by_chips = {"v5e", "v5litepod", "v6e"};
  if (!by_cores.contains(family) && !by_chips.contains(family)) return std::nullopt;
  const long long count = parse_integer(type.substr(dash + 1), str(kType, "=", type));
  if (count < 1) throw UsageError(str(kType, "=", type, ": expected a number above zero behind the dash"));
  return by_cores.contains(family) ? count / 2 : count;
}

std::vector<std::string> read_hosts(const std::string& text) {
  std::vector<std::string> hosts;
  std::set<std::string> seen;
  for (const std::string& word : split(text, ',')) {
    const std::string host(trim(word));
    if (host.empty()) throw UsageError(str(kHosts, "=", text, ": expected host names joined by commas"));
    if (!seen.insert(host).second) throw UsageError(str(kHosts, "=", text, " names ", host, " twice"));
    hosts.push_back(host);
  }
  return hosts;
}

void check(const TpuSlice& slice, const EnvironmentMap& environment) {
  const auto shown = [&](const char* variable) {
    return str(variable, "=", lookup(environment, variable).value_or(""));
  };
  if (slice.worker && !slice.hosts.empty() && *slice.worker >= static_cast<int>(slice.hosts.size())) {
    throw UsageError(str(shown(kWorker), " is none of the ", slice.hosts.size(), " workers of ",
                         shown(kHosts), ", which are numbered from 0"));
  }
  if (!slice.worker && slice.hosts.size() > 1) {
    throw UsageError(str(shown(kHosts), " names ", slice.hosts.size(), " workers, but ", kWorker,
                         " does not say which of them this one is"));
  }
  const auto of_type = chips_of_type(slice.accelerator_type);
  const long long of_axes = std::accumulate(slice.topology.begin(), slice.topology.end(), 1LL,
                                            [](long long chips, int axis) { return chips * axis; });
  if (of_type && !slice.topology.empty() && *of_type != of_axes) {
    throw UsageError(
        str(shown(kType), " has ", *of_type, " chips, but ", shown(kTopology), " has ", of_axes));
  }
  const long long chips = !slice.topology.empty() ? of_axes : of_type.value_or(0);
  if (chips > 0 && !slice.hosts.empty() && chips % static_cast<long long>(slice.hosts.size()) != 0) {
    throw UsageError(str(shown(slice.topology.empty() ? kType : kTopology), " has ", chips,
                         " chips, which the ", slice.hosts.size(), " workers of ", shown(kHosts),
                         " do not share evenly"));
  }
}

}  // namespace

std::vector<int> parse_axes(const std::string& text, const std::string& what) {
  std::vector<int> axes;
  for (const std::string& length : split(text, 'x')) {
    const bool digits = !length.empty() && length.find_first_not_of("0123456789") == std::string::npos;
    const long long value = digits && length.size() < 9 ? parse_integer(length, what) : 0;
    if (value < 1 || value > kLongestAxis || axes.size() == kMostAxes)
      throw UsageError(str(what, " ", text, ": expected one to three lengths above zero, as 2x2"));
    axes.push_back(static_cast<int>(value));
  }
  return axes;
}

std::optional<TpuSlice> read_tpu_slice(const EnvironmentMap& environment) {
  TpuSlice slice;
  bool said = false;
  const auto take = [&](const char* variable, const auto& use) {
    const auto text = lookup(environment, variable);
    said = said || text.has_value();
    if (text && !text->empty()) use(*text);
  };
  take(kWorker, [&](const std::string&) { slice.worker = integer_variable(environment, kWorker); });
  take(kHosts, [&](const std::string& text) { slice.hosts = read_hosts(text); });
  take(kTopology, [&](const std::string& text) { slice.topology = parse_axes(text, kTopology); });
  take(kType, [&](const std::string& text) { slice.accelerator_type = text; });
  if (!said) return std::nullopt;
  check(slice, environment);
  return slice;
}

namespace {

Settings read_slice(const EnvironmentMap& environment, const Settings& higher) {
  Settings settings;
  const auto slice = read_tpu_slice(environment);
  if (!slice || !slice->worker || slice->hosts.empty()) return settings;
  const auto hosts = static_cast<long long>(slice->hosts.size());
  settings.set(Field::node_rank, *slice->worker, "TPU_WORKER_ID");
  settings.set(Field::num_nodes, hosts, "TPU_WORKER_HOSTNAMES");
  const bool several_on_a_host = higher.integer(Field::local_world_size).value_or(1) > 1 ||
                                 higher.integer(Field::local_rank).value_or(0) > 0;
  if (!several_on_a_host) {
    settings.set(Field::rank, *slice->worker, "TPU_WORKER_ID");
    settings.set(Field::world_size, hosts, "TPU_WORKER_HOSTNAMES");
  }
  if (hosts > 1)
    settings.set_default(Field::master_addr, slice->hosts.front(), "first of TPU_WORKER_HOSTNAMES");
  return settings;
}

}  // namespace

const Source tpu_slice_source = {"tpu_slice", read_slice, nullptr};

}  // namespace rondo::env
