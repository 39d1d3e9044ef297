#pragma once

#include <vector>

#include "rondo/pipeline/simulation.h"

namespace rondo::bench {

// How one step's schedule went on all ranks, and how it would have gone by its simulation with the times that
// each stage took in this step, messages taking none.
struct Bubble {
  double schedule_s = 0;                         // from the first computation to the end of the last
  std::vector<double> busy_s = {};               // by rank: computing
  std::vector<double> idle_s = {};               // by rank: the rest of the schedule
  std::vector<pipeline::StageTimes> times = {};  // by stage: means over micro-batches
  std::vector<double> simulated_idle_s = {};     // by rank
};

// `ranks`: what each rank computed, with the times of one clock. Throws Error where a rank did not compute
// what its list says.
Bubble bubble_of(const pipeline::Schedule& schedule, const std::vector<std::vector<pipeline::Slot>>& ranks);

}  // namespace rondo::bench
