#pragma once

#include <cstdint>

#include "rondo/simulate/step_simulator.h"

namespace rondo::simulate {

// What makes the ranks of a job unlike each other.
struct Stragglers {
  double jitter = 0;       // each slot of each rank takes up to this share longer, drawn evenly
  int slow_ranks = 0;      // so many, spread over the ranks, are always slower
  double slow_factor = 1;  // by this factor
  std::uint64_t seed = 0;
};

struct ClusterResult {
  double step_s = 0;
  double exposed_s = 0;    // of the rank that computes least: step - its own compute
  double mean_wait_s = 0;  // over ranks: time neither computing nor with its own communication under way
  std::uint64_t peak_bytes = 0;
};

// One step of every rank. A block starts when all ranks of its shard group have launched it and the group's
// link is free, and it ends on all of them together. Time and memory grow linearly with ranks, slots and
// blocks. With equal ranks the result is that of simulate_step().
ClusterResult simulate_cluster(const cost::StepModel& model, const Candidate& plan,
                               std::uint64_t memory_limit, const Stragglers& stragglers);

}  // namespace rondo::simulate
