#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/plan/schedule/formulation.h"
#include "rondo/simulate/step_simulator.h"

// Ways from choices to a schedule: rules, and the rounding of what the solver says.
namespace rondo::plan {

// Units, slots and jobs are numbered by int (some numbers are negative); containers want this.
inline std::size_t index(int number) { return static_cast<std::size_t>(number); }

// Whether a search has to come to its end.
inline bool has_ended(const Wait& wait) {
  return wait.deadline.passed() || (wait.cancel != nullptr && wait.cancel->cancelled());
}

// How eagerly list_schedule() fills the link.
struct ListRule {
  int depth = 4;                  // gathers at most so many slots before their use
  bool reductions_first = false;  // fill with gradients before gathers
  bool spare_gradients = true;    // leave room for the gradients of the unit before
};

// Each gather in the last slots before its use, `ahead` slots early; each reduction as soon as its gradient
// is there; updated parameters at the start. What FSDP does with ahead = 1.
simulate::Candidate prefetch_schedule(const cost::StepModel& model,
                                      const std::vector<cost::UnitChoice>& choices, int ahead);

// Goes through the step as the simulator does and hands the link, at each slot, what must go now and then so
// much that it stays busy until the next: gathers by deadline, as far as memory has room for them until
// their use, and gradients. Without memory in the way this is preemptive earliest deadline first.
simulate::Candidate list_schedule(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                                  std::uint64_t memory_limit, const ListRule& rule);

// The best of several rules.
struct Scheduled {
  simulate::Candidate plan;
  simulate::StepResult result;
};
// True if a is a better answer than b: one that fits before one that does not, then the faster one.
bool is_better(const simulate::StepResult& a, const simulate::StepResult& b);
Scheduled best_list_schedule(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                             std::uint64_t memory_limit);

// Whole blocks out of fractions: a block is launched where `threshold` of it has been sent, and nothing later
// than it must. `reductions_first` puts gradients before gathers within a slot.
simulate::Candidate round_schedule(const cost::StepModel& model, const FluidSchedule& fluid, double threshold,
                                   bool reductions_first);
// The best over thresholds and orders, and of best_list_schedule() for the same choices.
Scheduled best_rounding(const cost::StepModel& model, const FluidSchedule& fluid, std::uint64_t memory_limit);

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
