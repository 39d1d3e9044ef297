#include "rondo/simulate/closed_forms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::simulate {
namespace {

constexpr std::array<std::pair<TopologyKind, const char*>, 5> kKinds{
    {{TopologyKind::host, "host"},
     {TopologyKind::fat_tree, "fat_tree"},
     {TopologyKind::torus_2d, "torus_2d"},
     {TopologyKind::torus_3d, "torus_3d"},
     {TopologyKind::slow_groups, "slow_groups"}}};

bool is_torus(const Topology& t) {
  return t.kind == TopologyKind::torus_2d || t.kind == TopologyKind::torus_3d;
}
int hosts_of(const Topology& t) { return (t.ranks + t.local_ranks - 1) / t.local_ranks; }

// Returns the side lengths of the most cubic grid of `dimensions` with `ranks` ranks.
std::vector<int> grid(int ranks, int dimensions) {
  std::vector<int> sides;
  int left = ranks;
  for (int d = dimensions; d > 1; --d) {
    int side = std::max(1, static_cast<int>(std::floor(std::pow(left, 1.0 / d) + 1e-9)));
    while (left % side != 0) --side;
    sides.push_back(side);
    left /= side;
  }
  sides.push_back(left);
  return sides;
}

OperationKind operation_of(cost::Collective collective) {
  switch (collective) {
    case cost::Collective::all_reduce:
      return OperationKind::all_reduce;
    case cost::Collective::reduce_scatter:
      return OperationKind::reduce_scatter;
    case cost::Collective::all_gather:
      break;
  }
  return OperationKind::all_gather;
}

// Returns the limiting wire of a byte between two ranks of a flat algorithm. A ring in host order uses each
// slow wire once; other algorithms send to arbitrary ranks.
Wire narrowest(const Topology& t, bool is_ring) {
  if (t.kind == TopologyKind::host || hosts_of(t) == 1) return t.inside;
  if (is_torus(t)) {
    if (is_ring) return t.inside;  // a Hamiltonian cycle of neighbours
    // A message crosses a quarter of each side on average, and shares those wires with other messages.
    double hops = 0;
    for (const int side : grid(t.ranks, t.kind == TopologyKind::torus_2d ? 2 : 3)) hops += side / 4.0;
    hops = std::max(1.0, hops);
    return {t.inside.latency_s * hops, t.inside.bytes_per_s / hops};
  }
  if (t.kind == TopologyKind::fat_tree)
    return {t.between.latency_s, std::min(t.inside.bytes_per_s, t.between.bytes_per_s)};
  // All ranks of a group share one wire, except in a ring.
  const double share = is_ring ? 1 : t.local_ranks;
  return {t.between.latency_s, std::min(t.inside.bytes_per_s, t.between.bytes_per_s / share)};
}

// Prices rings along each side of the grid in turn, each on the result of the previous ones.
double torus_seconds(const Topology& t, cost::Collective collective, double bytes) {
  const std::vector<int> sides = grid(t.ranks, t.kind == TopologyKind::torus_2d ? 2 : 3);
  double rounds = 0;
  for (const int side : sides) rounds += side - 1;
  const double p = t.ranks;
  const double once = rounds * t.inside.latency_s + (p - 1) / p * bytes / t.inside.bytes_per_s;
  return collective == cost::Collective::all_reduce ? 2 * once : once;
}

// Prices a collective inside the hosts, then between them on each local rank's part, then inside again.
double hierarchical_seconds(const Topology& t, cost::Collective collective, double bytes) {
  const double local = std::min(t.local_ranks, t.ranks);
  const double hosts = hosts_of(t);
  const double inside_rounds = local > 1 ? 1 : 0;
  const double between_rounds = hosts > 1 ? std::ceil(std::log2(hosts)) : 0;
  // Ranks of a group share its wire; on rails each rank has its own.
  const double wire =
      t.kind == TopologyKind::slow_groups ? t.between.bytes_per_s / local : t.between.bytes_per_s;
  const double once = inside_rounds * t.inside.latency_s +
                      (local - 1) / local * bytes / t.inside.bytes_per_s +
                      between_rounds * t.between.latency_s + (hosts - 1) / (hosts * local) * bytes / wire;
  return collective == cost::Collective::all_reduce ? 2 * once : once;
}

}  // namespace

Topology parse_topology(std::string_view text, int ranks) {
  const std::size_t colon = text.find(':');
  Topology topology;
  topology.ranks = ranks;
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                 [&](const auto& entry) { return text.substr(0, colon) == entry.second; });
  if (kind == kKinds.end()) {
    throw UsageError(str("--topology: '", text.substr(0, colon),
                         "' is not one of host, fat_tree, torus_2d, torus_3d, slow_groups"));
  }
  topology.kind = kind->first;
  if (topology.kind == TopologyKind::host) topology.local_ranks = ranks;
  if (is_torus(topology)) topology.inside = {1e-6, 50e9};
  if (is_torus(topology)) topology.local_ranks = 1;
  for (const std::string& entry : split(colon == std::string_view::npos ? "" : text.substr(colon + 1), ',')) {
    const std::size_t equal = entry.find('=');
    const std::string key = entry.substr(0, equal);
    const std::string value = equal == std::string::npos ? "" : entry.substr(equal + 1);
    const std::string what = str("--topology ", key);
    if (key == "local") {
      topology.local_ranks = static_cast<int>(parse_integer(value, what));
    } else if (key == "inside") {
      topology.inside.bytes_per_s = parse_number(value, what);
    } else if (key == "between") {
      topology.between.bytes_per_s = parse_number(value, what);
    } else if (key == "inside_latency") {
      topology.inside.latency_s = seconds(parse_duration(value, what));
    } else if (key == "between_latency") {
      topology.between.latency_s = seconds(parse_duration(value, what));
    } else {
      throw UsageError(
          str(what, ": known are local, inside, between (bytes/s), inside_latency, between_latency"));
    }
  }
  const bool is_sane = topology.local_ranks >= 1 && topology.inside.bytes_per_s > 0 &&
                       topology.between.bytes_per_s > 0 && topology.inside.latency_s >= 0 &&
                       topology.between.latency_s >= 0;
  if (!is_sane) throw UsageError(str("--topology ", text, ": rates and local must be positive"));
  if (!is_torus(topology) && ranks > topology.local_ranks && ranks % topology.local_ranks != 0) {
    throw UsageError(
        str("--topology ", text, ": local=", topology.local_ranks, " does not divide ", ranks, " ranks"));
  }
  return topology;
}

std::string describe(const Topology& topology) {
  for (const auto& [kind, name] : kKinds) {
    if (kind == topology.kind) return name;
  }
  return "";
}

std::vector<std::string> topology_algorithms(const Topology& topology) {
  std::vector<std::string> names{"auto"};
  for (const std::string& name : collective::algorithm_names()) {
    if (name == "torus_2d" && !is_torus(topology)) continue;
    if (name == "hierarchical" && (is_torus(topology) || hosts_of(topology) < 2)) continue;
    names.push_back(name);
  }
  return names;
}

double collective_seconds(const Topology& topology, const std::string& algorithm, cost::Collective collective,
                          double bytes) {
  const std::vector<std::string> names = topology_algorithms(topology);
  if (std::find(names.begin(), names.end(), algorithm) == names.end())
    throw UsageError(
        str("--algorithm: '", algorithm, "' is not one of ", join(names, ", "), " on ", describe(topology)));
  if (topology.ranks <= 1) return 0;
  const OperationKind operation = operation_of(collective);
  if (algorithm == "auto") {
    double best = 1e300;
    for (const std::string& name : names) {
      if (name != "auto" && collective::find_algorithm(name).has(operation))
        best = std::min(best, collective_seconds(topology, name, collective, bytes));
    }
    return best;
  }
  if (algorithm == "torus_2d") return torus_seconds(topology, collective, bytes);
  if (algorithm == "hierarchical") return hierarchical_seconds(topology, collective, bytes);
  const collective::Algorithm& found = collective::find_algorithm(algorithm);
  if (!found.has(operation))
    throw UsageError(str("--algorithm: ", algorithm, " has no ", cost::name(collective)));
  // Closed form for 1 KiB per rank; bytes scale.
  collective::ScheduleRequest request{.operation = operation, .world = topology.ranks};
  request.bytes = {(1U << 10) * static_cast<std::uint64_t>(topology.ranks)};
  request.segment = {std::max<std::uint64_t>(
      4, static_cast<std::uint64_t>(static_cast<double>(KiB(256).count) *
                                    static_cast<double>(request.bytes.count) / std::max(bytes, 1.0)))};
  collective::Cost most;
  for (const int rank : {0, 1, topology.ranks - 1}) {
    request.rank = rank;
    const collective::Cost cost = found.cost(request);
    most.rounds = std::max(most.rounds, cost.rounds);
    most.bytes_sent = std::max({most.bytes_sent, cost.bytes_sent, cost.bytes_received});
  }
  const Wire wire = narrowest(topology, algorithm == "ring");
  return most.rounds * wire.latency_s + static_cast<double>(most.bytes_sent) /
                                            static_cast<double>(request.bytes.count) * bytes /
                                            wire.bytes_per_s;
}

cost::Link link_of(const Topology& topology, const std::string& algorithm, double contention) {
  cost::Link link;
  link.ranks = std::max(2, topology.ranks);
  link.contention = contention;
  for (const cost::Collective c : cost::kCollectives) {
    std::vector<cost::CostPoint> points;
    for (std::uint64_t bytes = KiB(1).count; bytes <= GiB(16).count; bytes *= 4) {
      double seconds =
          std::max(1e-12, collective_seconds(topology, algorithm, c, static_cast<double>(bytes)));
      if (!points.empty()) seconds = std::max(seconds, points.back().seconds);
      points.push_back({bytes, seconds});
    }
    link.curves[static_cast<std::size_t>(c)] = cost::CostCurve(std::move(points), cost::name(c));
  }
  cost::fit(link);
  return link;
}

ProfileTotals totals_of(const cost::Profile& profile) {
  ProfileTotals t;
  for (const cost::UnitProfile& u : profile.units) {
    t.forward_s += u.forward_s;
    t.backward_s += u.backward_s;
    t.optimizer_s += u.optimizer_s;
    t.state_bytes += u.parameter_bytes + u.gradient_bytes + u.optimizer_bytes;
    t.gradient_bytes += u.gradient_bytes;
    t.parameter_bytes += u.parameter_bytes;
    t.activation_bytes += u.activation_bytes;
    const auto backward = static_cast<std::uint64_t>(std::max<std::int64_t>(0, u.backward_workspace_bytes));
    t.workspace_bytes = std::max({t.workspace_bytes, u.forward_workspace_bytes, backward});
  }
  return t;
}

ClosedForm parameter_server_step(const cost::Profile& profile, const ParameterServerSettings& s) {
  if (s.workers < 1 || s.servers < 1 || s.worker_bytes_per_s <= 0 || s.server_bytes_per_s <= 0)
    throw UsageError("--parameter-server: workers, servers and rates must be positive");
  const ProfileTotals t = totals_of(profile);
  const auto time = [&](std::uint64_t bytes) {
    const double b = static_cast<double>(bytes);
    const double at_worker = b / s.worker_bytes_per_s;
    const double at_server = b * (s.is_synchronous ? s.workers : 1) / s.servers / s.server_bytes_per_s;
    return std::max(at_worker, at_server);
  };
  const double update = t.optimizer_s / s.servers;
  ClosedForm result;
  result.step_s = std::max(t.forward_s, time(t.parameter_bytes)) +
                  std::max(t.backward_s, time(t.gradient_bytes)) + (s.is_synchronous ? update : 0);
  if (!s.is_synchronous) {
    // Servers carry all workers' bytes in any case, which limits the rate of steps.
    const double all = static_cast<double>(t.parameter_bytes) * s.workers / s.servers / s.server_bytes_per_s;
    result.step_s = std::max(result.step_s, all);
  }
  result.idle_share = 1 - (t.forward_s + t.backward_s) / result.step_s;
  result.peak_bytes =
      profile.base_bytes + t.parameter_bytes + t.gradient_bytes + t.activation_bytes + t.workspace_bytes;
  return result;
}

PipelineStep pipeline_step(const cost::Profile& profile, const PipelineSettings& s) {
  PipelineStep result;
  result.schedule = pipeline::make_schedule(s.schedule, s.stages, s.micro_batches, s.chunks);
  const ProfileTotals t = totals_of(profile);
  const double p = s.stages;
  const pipeline::StageTimes of_rank{t.forward_s / p, t.backward_s / 2 / p, t.backward_s / 2 / p,
                                     s.message_s};
  result.timeline = pipeline::simulate(result.schedule, of_rank);
  const double idle = *std::max_element(result.timeline.idle_s.begin(), result.timeline.idle_s.end());
  result.step_s = s.passes * result.timeline.step_s + t.optimizer_s / p;
  result.idle_share = s.passes * idle / result.step_s;
  const std::vector<int> peaks = peak_activations(result.schedule);
  const double alive = *std::max_element(peaks.begin(), peaks.end());
  result.peak_bytes = profile.base_bytes + t.workspace_bytes +
                      static_cast<std::uint64_t>(static_cast<double>(t.state_bytes) / p +
                                                 alive * static_cast<double>(t.activation_bytes) /
                                                     static_cast<double>(result.schedule.stages()));
  return result;
}

}  // namespace rondo::simulate
