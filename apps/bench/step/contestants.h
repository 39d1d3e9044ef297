#pragma once

#include <string>
#include <vector>

#include "apps/bench/step/contest.h"
#include "apps/bench/step/schedule_flags.h"
#include "apps/bench/step/variant.h"

namespace rondo::bench {

// Who takes part in a comparison.
struct Lineup {
  std::vector<std::string> strategies = {"ddp"};  // rondo's, beside one_device; names that the registry knows
  std::string backend = "auto";                   // engine of rondo's strategies
  std::string bucket_bytes;                       // empty: the default
  int joint_batch = 1;
  ScheduleFlags schedule;
  std::vector<Variant> variants;             // take part beside `strategies`
  bool ablation = false;                     // one contestant for each step of schedule_ablation
  std::string matmul = "libtorch";           // the matrix products of rondo's contestants
  bool peers = false;                        // PyTorch's counterparts too
  std::vector<std::string> peer_strategies;  // ddp, zero1, fsdp2; empty: the counterparts of `strategies`
  std::vector<std::string> peer_settings;    // usual, fastest; empty: both for ddp, fastest for the others
};

// PyTorch's strategy that does what rondo's `strategy` does; empty when it has none.
std::string counterpart(const std::string& strategy);

// Starts everyone's processes; they live as long as the result.
std::vector<Contestant> start_contestants(const Lineup& lineup, const StepCase& training,
                                          const FleetPlace& place);

}  // namespace rondo::bench
