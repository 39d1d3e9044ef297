#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/cost/profile.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"

namespace rondo::simulate {

// A link between two neighbours.
struct Wire {
  double latency_s = 10e-6;
  double bytes_per_s = 25e9;
};

enum class TopologyKind {
  host,      // all ranks on one host, through its memory
  fat_tree,  // rail-optimised: local rank i of every host is on rail i; full bisection on each rail
  torus_2d,  // neighbours only, as in TPU pods
  torus_3d,
  slow_groups,  // fast inside groups; one shared slow wire between each group and the rest
};

// The network between ranks.
struct Topology {
  TopologyKind kind = TopologyKind::host;
  int ranks = 1;
  int local_ranks = 8;        // ranks per host or group
  Wire inside{2e-6, 200e9};   // between ranks of a host or group; in a torus between neighbours
  Wire between{10e-6, 25e9};  // per rank (fat tree) or per group (slow groups)
};

// Parses "host", "fat_tree", "torus_2d", "torus_3d" or "slow_groups", with settings as in
// "fat_tree:local=8,inside=200e9,between=25e9,inside_latency=2us,between_latency=10us". Throws UsageError.
Topology parse_topology(std::string_view text, int ranks);
std::string describe(const Topology& topology);

// Returns the algorithms of rondo/collective that have a closed form here, and "auto", the fastest at each
// size.
std::vector<std::string> topology_algorithms(const Topology& topology);

// Returns the seconds of one collective by an algorithm. Rounds, bytes and peers are the closed forms of
// docs/algorithms.md; each byte is priced at the narrowest wire of its path. Throws UsageError for an
// algorithm that the operation or the topology does not have.
double collective_seconds(const Topology& topology, const std::string& algorithm, cost::Collective collective,
                          double bytes);

// Returns a topology as the planner's link, with curves at sizes from 1 KiB to 16 GiB.
cost::Link link_of(const Topology& topology, const std::string& algorithm, double contention);

// Strategies that are priced by formula.

// Sums over all units of a model; workspace_bytes is the largest of any unit.
struct ProfileTotals {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  std::uint64_t state_bytes = 0;  // parameters, gradients and optimizer state
  std::uint64_t gradient_bytes = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t workspace_bytes = 0;
};
ProfileTotals totals_of(const cost::Profile& profile);

struct ClosedForm {
  double step_s = 0;
  double idle_share = 0;         // idle share of a rank's step
  std::uint64_t peak_bytes = 0;  // highest peak of any rank
};

// Parameter servers: workers send gradients to servers that own equal shares of all parameters, and read
// parameters back.
struct ParameterServerSettings {
  int workers = 1;
  int servers = 1;
  double worker_bytes_per_s = 1e9;
  double server_bytes_per_s = 1e9;
  bool is_synchronous = true;  // false: a worker waits only for its own bytes
};
// Predicts a step. Its communication takes the longer of a worker's link time, with gradients and parameters
// in opposite directions at the same time, and a server's, which carries all workers' bytes. Pushes overlap
// backward, pulls overlap forward.
ClosedForm parameter_server_step(const cost::Profile& profile, const ParameterServerSettings& settings);

// A pipeline of equal parts of a model.
struct PipelineSettings {
  int stages = 1;                 // ranks of the pipeline
  int micro_batches = 1;          // per pass; the profile is for one micro-batch
  int passes = 1;                 // accumulated passes of a step
  std::string schedule = "1f1b";  // pipeline::schedule_names()
  int chunks = 2;                 // interleaved: parts of the model per rank
  double message_s = 0;           // time of a micro-batch's activations or gradients to a neighbour
};
// A predicted step of a pipeline.
struct PipelineStep {
  double step_s = 0;              // all passes, and the optimizer
  double idle_share = 0;          // largest idle share of a rank's step
  std::uint64_t peak_bytes = 0;   // highest peak of any rank
  pipeline::Schedule schedule;    // simulated schedule
  pipeline::Simulation timeline;  // simulation of one pass
};
// Simulates the schedule with the profile's times of a micro-batch. Half of a backward pass computes the
// gradients of inputs. Throws UsageError for invalid settings.
PipelineStep pipeline_step(const cost::Profile& profile, const PipelineSettings& settings);

}  // namespace rondo::simulate
