#pragma once

#include <string>
#include <vector>

#include "apps/bench/step/fleet.h"
#include "apps/bench/step/step_case.h"
#include "rondo/base/time.h"

namespace rondo::bench {

// What one rank measured, one entry a step; lists are empty, and figures 0, where a system does not tell.
struct RankSamples {
  std::vector<double> step_ms;
  std::vector<double> losses;
  std::vector<double> comm_ms;
  std::vector<double> exposed_comm_ms;
  std::uint64_t peak_bytes = 0;         // as the system itself tracked for it
  std::uint64_t peak_tensor_bytes = 0;  // of tensors and buffers alive at a time, to the byte
  std::uint64_t peak_rss_bytes = 0;
  // As the kernel tells, see process_figures.h.
  std::uint64_t peak_pss_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  std::string matmul = "libtorch";  // kernels of its float32 matrix products
};

// One line of the result.
struct Contestant {
  std::string system;    // rondo, pytorch
  std::string strategy;  // a name of the registry; PyTorch's: ddp, zero1, fsdp2
  std::string setting;   // which variant; empty when there is only one
  std::shared_ptr<Fleet> fleet;
  std::size_t ranks = 1;     // of the fleet's processes, the first so many take part
  std::size_t replicas = 1;  // in each, on the batch of a rank each
  std::string policy = {};   // the scheduler's policy that an ablation switches on here; "fifo" for none
  bool own_matmul = false;   // rondo's own choice of matrix products
  std::vector<RankSamples> samples = {};
  std::uint64_t link_bytes = 0;  // sent by the busiest host in all bursts
  int link_steps = 0;            // steps in which they were sent

  // "pytorch ddp, fastest setting".
  std::string title() const { return system + " " + strategy + (setting.empty() ? "" : ", " + setting); }
};

struct ContestOptions {
  int warm_up = 2;  // steps before anything counts
  int rounds = 6;
  int steps = 4;  // of each contestant in each round
  Duration patience = std::chrono::minutes(10);
};

// Lets the contestants run in turns, in short bursts: on a machine whose speed drifts, all see the same
// weather. Only one computes at a time; the others wait for their next line of input. The first of several
// steps in a burst is not counted: caches are cold, and what a strategy leaves to the next step's forward
// pass is not there. At the end each contestant takes a few untimed steps while its memory is looked at.
void run_contest(std::vector<Contestant>& contestants, const ContestOptions& options);

}  // namespace rondo::bench
