#pragma once

#include <cstdint>
#include <vector>

#include "rondo/cost/step_model.h"

namespace rondo::simulate {

// Consecutive segments of one collective, launched together.
struct Launch {
  int job = 0;  // index in StepModel::jobs
  int segments = 0;
  bool operator==(const Launch&) const = default;
};

// A training step that a search changes and the simulator executes: each unit's choice, and the segments
// launched at the start of each slot, in order. Indices are those of a StepModel. The result of a search is a
// cost::StepPlan.
struct Candidate {
  std::vector<cost::UnitChoice> choices;      // by unit
  std::vector<std::vector<Launch>> launches;  // by slot
  bool operator==(const Candidate&) const = default;
};

// Throws UsageError that names the unit and the collective if the plan is not legal: a choice that the unit
// does not have, a parameter or gradient not communicated exactly once per collective of its strategy, a
// segment launched before its data is ready or after it is needed.
void check_plan(const cost::StepModel& model, const Candidate& plan);

// Returns the choice nearest to `wanted`: zero3_keep for zero3 if the unit has no slot between forward and
// backward, no checkpointing if the unit has none, otherwise the unit's first strategy.
cost::UnitChoice nearest_choice(const cost::StepModel& model, int unit, cost::UnitChoice wanted);

// Memory during a slot's compute.
struct MemoryParts {
  std::uint64_t persistent = 0;  // base, parameters, persistent gradients and optimizer state
  std::uint64_t activations = 0;
  std::uint64_t workspace = 0;
  std::uint64_t gathered = 0;   // parameters of zero3 units
  std::uint64_t gradients = 0;  // not yet reduced to this rank's shard
  std::uint64_t total() const { return persistent + activations + workspace + gathered + gradients; }
};

struct SlotRecord {
  double ready_s = 0;  // end of the previous slot
  double due_s = 0;    // time at which its inputs have arrived
  double begin_s = 0;  // start of its compute, when its memory is free
  double end_s = 0;
  // Number, in link order, of the last segment whose memory it waited for, or -1.
  int waited_for = -1;
  // Number, in link order, of the last segment without whose memory it would not fit, or -1, whether waited
  // for or not.
  int needs_gone = -1;
  MemoryParts memory;
};

struct SegmentRecord {
  int job = 0;
  int index = 0;
  int slot = 0;
  double begin_s = 0;
  double end_s = 0;
};

// The trace of a simulated step.
struct Timeline {
  std::vector<SlotRecord> slots;
  std::vector<SegmentRecord> segments;  // in link order
};

struct StepResult {
  double step_s = 0;
  double compute_s = 0;  // compute alone
  double communication_s = 0;
  // Time for which compute stalls: for due segments, and for the memory of gradients. If the computing thread
  // also communicates (link.parameters_in_place), it includes all slowdown by communication.
  double exposed_s = 0;
  double slowed_s = 0;  // step - compute - exposed: slowdown of compute by concurrent communication
  std::uint64_t peak_bytes = 0;
  int peak_slot = 0;
  bool fits = true;  // every slot is within the limit
};

// Simulates one step of a rank whose peers do the same at the same time.
//
// Compute executes the slots in order, from the update by the previous step's gradients until this step's
// gradients are reduced. A slot begins when three conditions hold: the previous slot has ended, every segment
// due by then has arrived, and its allocations fit the limit. Reductions in flight free memory meanwhile. At
// its begin its segments join the link's queue; in the update's slot only segments of updated parameters do,
// the others at its end. The link carries one segment at a time, in queue order, and is never idle while the
// queue has a segment. While it is busy, compute is slower by the link's contention. Deterministic; safe from
// any thread.
StepResult simulate_step(const cost::StepModel& model, const Candidate& plan, std::uint64_t memory_limit,
                         Timeline* timeline = nullptr);

// Predicted costs of one unit in a step, as training measures them.
struct UnitForecast {
  // Stalls for this unit's segments: for its parameters, for the memory of its gradients, or after the last
  // backward.
  double exposed_s = 0;
  // Peak memory of the rank, during the unit's forward and backward.
  std::uint64_t peak_bytes = 0;
};

// Returns the costs by unit. The units' exposed times sum to the step's waits: StepResult::exposed_s, minus
// the slowdown that an engine without its own thread causes.
std::vector<UnitForecast> forecast_units(const cost::StepModel& model, const Timeline& timeline);

}  // namespace rondo::simulate
