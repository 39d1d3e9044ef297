#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/child_process.h"
#include "apps/bench/step/step_case.h"
#include "rondo/base/time.h"

namespace rondo::bench {

// What one rank measured, one entry a step; the last two are empty where a system does not tell.
struct RankSamples {
  std::vector<double> step_ms;
  std::vector<double> losses;
  std::vector<double> comm_ms;
  std::vector<double> exposed_comm_ms;
  std::uint64_t peak_bytes = 0;  // 0 where a system does not tell
  std::uint64_t peak_rss_bytes = 0;
  std::string matmul = "default";  // kernels of its float32 matrix products
};

// Processes that were started together.
struct Fleet {
  std::vector<std::unique_ptr<ChildProcess>> workers;
};

// One line of the result.
struct Contestant {
  std::string system;    // rondo, pytorch
  std::string strategy;  // one_device, ddp
  std::string setting;   // which variant; empty when there is only one
  std::shared_ptr<Fleet> fleet;
  std::size_t ranks = 1;  // of the fleet's processes, the first so many take part
  std::vector<RankSamples> samples = {};

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
// weather. Only one computes at a time; the others wait for their next line of input.
void run_contest(std::vector<Contestant>& contestants, const ContestOptions& options);

}  // namespace rondo::bench
