#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/cost/profile.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"

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

// Strategies that are priced by formula.

// All units of a model together; workspaces are those of the unit with the largest.
struct ProfileTotals {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  std::uint64_t state_bytes = 0;  // parameters, gradients, what the optimizer remembers
  std::uint64_t gradient_bytes = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t workspace_bytes = 0;
};
ProfileTotals totals_of(const cost::Profile& profile);

struct ClosedForm {
  double step_s = 0;
  double idle_share = 0;         // of the step, of a rank
  std::uint64_t peak_bytes = 0;  // of the rank that needs most
};

// Workers send gradients to servers that own the parameters in equal parts, and read them back.
struct ParameterServerSettings {
  int workers = 1;
  int servers = 1;
  double worker_bytes_per_s = 1e9;
  double server_bytes_per_s = 1e9;
  bool is_synchronous = true;  // asynchronous: a worker waits only for its own bytes
};
// The slower of a worker's link, which carries gradients out and parameters in at the same time, and a
// server's, which carries those of all workers; pushing goes on under backward, pulling under forward.
ClosedForm parameter_server_step(const cost::Profile& profile, const ParameterServerSettings& settings);

// A pipeline of equal parts of a model.
struct PipelineSettings {
  int stages = 1;                 // ranks of the pipeline
  int micro_batches = 1;          // of a pass; the profile is of one
  int passes = 1;                 // accumulated in a step
  std::string schedule = "1f1b";  // pipeline::schedule_names()
  int chunks = 2;                 // interleaved: parts of the model on a rank
  double message_s = 0;           // until a micro-batch's activations or gradients are at a neighbour
};
// A step of it.
struct PipelineStep {
  double step_s = 0;              // all passes, and the optimizer
  double idle_share = 0;          // of the step, of the rank that stands still longest
  std::uint64_t peak_bytes = 0;   // of the rank that needs most
  pipeline::Schedule schedule;    // that was simulated ...
  pipeline::Simulation timeline;  // ... and how a pass went
};
// Simulates the schedule with the profile's times of a micro-batch; half of a backward pass is for the
// gradients of the inputs. Throws UsageError for settings that cannot be.
PipelineStep pipeline_step(const cost::Profile& profile, const PipelineSettings& settings);

}  // namespace rondo::simulate
