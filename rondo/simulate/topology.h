#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rondo/cost/link.h"

namespace rondo::simulate {

// Messages between two neighbours.
struct Wire {
  double latency_s = 10e-6;
  double bytes_per_s = 25e9;
};

enum class TopologyKind {
  host,      // all ranks on one host, through its memory
  fat_tree,  // rail-optimised: local rank i of every host hangs on rail i, full bisection on each rail
  torus_2d,  // neighbours only, as in TPU pods
  torus_3d,
  slow_groups,  // fast inside groups, one shared slow wire between each group and the rest
};

// How ranks are connected.
struct Topology {
  TopologyKind kind = TopologyKind::host;
  int ranks = 1;
  int local_ranks = 8;        // of a host or group
  Wire inside{2e-6, 200e9};   // between ranks of a host or group; of a torus between neighbours
  Wire between{10e-6, 25e9};  // per rank (fat tree), or per group (slow groups)
};

// "host", "fat_tree", "torus_2d", "torus_3d", "slow_groups", with settings as in
// "fat_tree:local=8,inside=200e9,between=25e9,inside_latency=2us,between_latency=10us". Throws UsageError.
Topology parse_topology(std::string_view text, int ranks);
std::string describe(const Topology& topology);

// The algorithms of rondo/collective that have a closed form here, and "auto", the fastest at each size.
std::vector<std::string> topology_algorithms(const Topology& topology);

// Seconds of one collective by an algorithm: rounds, bytes and who they go to from the closed forms of
// docs/algorithms.md, each byte over the narrowest wire of its way. Throws UsageError for an algorithm that
// the operation or the topology does not have.
double collective_seconds(const Topology& topology, const std::string& algorithm, cost::Collective collective,
                          double bytes);

// A topology as the planner's link: its curves at sizes from 1 KiB to 16 GiB.
cost::Link link_of(const Topology& topology, const std::string& algorithm, double contention);

}  // namespace rondo::simulate
