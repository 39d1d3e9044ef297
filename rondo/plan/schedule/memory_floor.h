#pragma once

#include <cstdint>
#include <vector>

#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {

// The plan that needs the least memory: every gather right before its use, every gradient sent before the
// next is there, and for each unit the choice that lowers the highest slot.
struct MemoryFloor {
  simulate::Candidate plan;
  std::uint64_t bytes = 0;
  int slot = 0;           // where it is needed
  bool is_proven = true;  // false: without a solver, the least found by changing one unit at a time
};
// When `wait` ends the search early, the least that was found by then.
MemoryFloor memory_floor(const cost::StepModel& model, const Wait& wait = {});

// The largest peak among the uniform strategies without checkpointing: more memory than this buys nothing
// that one of them would not give.
std::uint64_t memory_ceiling(const cost::StepModel& model);

}  // namespace rondo::plan
