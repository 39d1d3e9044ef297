#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/plan/schedule/formulation.h"
#include "rondo/simulate/step_simulator.h"

// Schedules for given choices: rules, and rounding of the solver's fractions.
namespace rondo::plan {

// Converts a number of a unit, slot or job (int, since some are negative) to an index of a container.
inline std::size_t index(int number) { return static_cast<std::size_t>(number); }

// Returns true if a search must stop.
inline bool has_ended(const Wait& wait) {
  return wait.deadline.passed() || (wait.cancel != nullptr && wait.cancel->cancelled());
}

// Options of list_schedule().
struct ListRule {
  int depth = 4;                  // largest number of slots between a gather and its use
  bool reductions_first = false;  // launch reductions of gradients before gathers
  bool spare_gradients = true;    // reserve memory for the gradients of the previous unit
};

// Launches each gather `ahead` slots before its use, each reduction as soon as its gradient is computed, and
// updated parameters at the start. FSDP does this with ahead = 1.
simulate::Candidate prefetch_schedule(const cost::StepModel& model,
                                      const std::vector<cost::UnitChoice>& choices, int ahead);

// Walks through the step like the simulator. At each slot it launches the jobs that must start now, then
// enough jobs to keep the link busy until the next slot: gathers by deadline if memory has room for them
// until their use, and reductions. Without a binding memory limit this is preemptive earliest deadline first.
simulate::Candidate list_schedule(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                                  std::uint64_t memory_limit, const ListRule& rule);

// A plan with its simulated step.
struct Scheduled {
  simulate::Candidate plan;
  simulate::StepResult result;
};
// Returns true if a is the better answer: one that fits before one that does not, then the faster one.
bool is_better(const simulate::StepResult& a, const simulate::StepResult& b);
Scheduled best_list_schedule(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                             std::uint64_t memory_limit);

// Rounds fractions to whole segments. A segment is launched in the slot in which `threshold` of it has been
// sent, and never after its last slot. `reductions_first` puts reductions before gathers within a slot.
simulate::Candidate round_schedule(const cost::StepModel& model, const FluidSchedule& fluid, double threshold,
                                   bool reductions_first);
// Returns the best plan over thresholds, orders, and best_list_schedule() for the same choices.
Scheduled best_rounding(const cost::StepModel& model, const FluidSchedule& fluid, std::uint64_t memory_limit);

// The plan with the smallest peak memory: each gather immediately before its use, each gradient reduced
// before the next is computed, and for each unit the choice that lowers the peak slot.
struct MemoryFloor {
  simulate::Candidate plan;
  std::uint64_t bytes = 0;
  int slot = 0;           // slot of the peak
  bool is_proven = true;  // false: without a proof, the best result of changing one unit at a time
};
// Searches for the smallest peak memory. When `wait` ends, returns the smallest so far.
MemoryFloor memory_floor(const cost::StepModel& model, const Wait& wait = {});

// Returns the largest peak of the uniform strategies without checkpointing. More memory than this allows no
// plan that these do not.
std::uint64_t memory_ceiling(const cost::StepModel& model);

}  // namespace rondo::plan
