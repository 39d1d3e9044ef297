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

// A long run on machines that fail.
struct FailureModel {
  double mean_time_between_failures_s = 0;  // of one rank; the job fails `ranks` times as often
  int ranks = 1;
  double checkpoint_s = 0;  // how long training stands still for a checkpoint
  double restart_s = 0;     // from a failure until training goes on at the last checkpoint

  double job_mean_time_s() const { return mean_time_between_failures_s / ranks; }
};

// Computing time between two checkpoints that loses least. Young, "A first order approximation to the optimum
// checkpoint interval", 1974: sqrt(2 C M). Daly, "A higher order estimate of the optimum checkpoint interval
// for restart dumps", 2006, eq. 37.
double young_interval_s(const FailureModel& model);
double daly_interval_s(const FailureModel& model);

// Share of the wall time that ends up in kept training steps, with failures as a Poisson process (Daly 2006,
// eq. 20, which is exact for exponential failures): interval / expected wall time of interval, checkpoint and
// repeats.
double expected_goodput(const FailureModel& model, double interval_s);

// The same, drawn: a run until `useful_s` seconds of training are kept. Deterministic for a seed.
double simulated_goodput(const FailureModel& model, double interval_s, double useful_s, std::uint64_t seed);

}  // namespace rondo::simulate
