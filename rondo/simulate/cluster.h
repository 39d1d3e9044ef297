#pragma once

#include <cstdint>

#include "rondo/simulate/step_simulator.h"

namespace rondo::simulate {

// Differences between the ranks of a job.
struct Stragglers {
  double jitter = 0;       // largest relative slowdown of a slot of a rank, drawn uniformly
  int slow_ranks = 0;      // number of ranks, spread evenly, that are always slower
  double slow_factor = 1;  // factor of their compute times
  std::uint64_t seed = 0;
};

struct ClusterResult {
  double step_s = 0;
  double exposed_s = 0;    // step minus own compute, for the rank with the least compute
  double mean_wait_s = 0;  // mean over ranks of step minus compute
  std::uint64_t peak_bytes = 0;
};

// Simulates one step of every rank. A segment starts when all ranks of its shard group have launched it and
// the group's link is free; it ends on all of them together. Time and memory are linear in ranks, slots and
// segments. With equal ranks the result equals simulate_step().
ClusterResult simulate_cluster(const cost::StepModel& model, const Candidate& plan,
                               std::uint64_t memory_limit, const Stragglers& stragglers);

// A long run on machines that fail.
struct FailureModel {
  double mean_time_between_failures_s = 0;  // per rank; the job fails `ranks` times as often
  int ranks = 1;
  double checkpoint_s = 0;  // pause of training for a checkpoint
  double restart_s = 0;     // from a failure until training resumes from the last checkpoint

  double job_mean_time_s() const { return mean_time_between_failures_s / ranks; }
};

// Return the compute time between checkpoints that loses least. Young, "A first order approximation to the
// optimum checkpoint interval", 1974: sqrt(2 C M). Daly, "A higher order estimate of the optimum checkpoint
// interval for restart dumps", 2006, eq. 37.
double young_interval_s(const FailureModel& model);
double daly_interval_s(const FailureModel& model);

// Returns the share of wall time spent in training steps that are kept, with failures as a Poisson process
// (Daly 2006, eq. 20, exact for exponential failures): interval / expected wall time of interval, checkpoint
// and repeats.
double expected_goodput(const FailureModel& model, double interval_s);

// Simulates expected_goodput(): runs until `useful_s` seconds of training are kept. Deterministic for a seed.
double simulated_goodput(const FailureModel& model, double interval_s, double useful_s, std::uint64_t seed);

}  // namespace rondo::simulate
