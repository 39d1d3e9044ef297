#pragma once

#include <cstdint>
#include <vector>

#include "rondo/cost/step_model.h"

namespace rondo::simulate {

// Some blocks of one collective, launched one behind the other.
struct Launch {
  int job = 0;  // number in StepModel::jobs
  int blocks = 0;
  bool operator==(const Launch&) const = default;
};

// A training step as a search changes it and the simulator executes it, in numbers of a StepModel: what each
// unit does, and which blocks are handed to the link at the start of which slot, in which order. What a
// search ends with is a cost::StepPlan.
struct Candidate {
  std::vector<cost::UnitChoice> choices;      // by unit
  std::vector<std::vector<Launch>> launches;  // by slot
  bool operator==(const Candidate&) const = default;
};

// Throws UsageError that names the unit and the collective when the plan is not legal: a choice that the unit
// does not have, a parameter or gradient not communicated exactly once per collective of its strategy, a
// block launched before its data is there or after it is needed.
void check_plan(const cost::StepModel& model, const Candidate& plan);

// The choice nearest to the one wanted: zero3 is zero3_keep where the unit has no slot between forward and
// backward, checkpointing falls away where the unit has none, another strategy is the first the unit allows.
cost::UnitChoice nearest_choice(const cost::StepModel& model, int unit, cost::UnitChoice wanted);

// What is alive while a slot computes.
struct MemoryParts {
  std::uint64_t persistent = 0;  // base, parameters, gradients and optimizer state that stay
  std::uint64_t activations = 0;
  std::uint64_t workspace = 0;
  std::uint64_t gathered = 0;   // parameters of zero3 units
  std::uint64_t gradients = 0;  // not yet reduced to this rank's part
  std::uint64_t total() const { return persistent + activations + workspace + gathered + gradients; }
};

struct SlotRecord {
  double ready_s = 0;  // the slot before had ended
  double due_s = 0;    // what it computes with had come
  double begin_s = 0;  // and its memory was free
  double end_s = 0;
  int waited_for = -1;  // number, in the order of the link, of the last block whose memory it waited for
  int needs_gone = -1;  // likewise of the last one without whose memory it would not fit, waited for or not
  MemoryParts memory;
};

struct BlockRecord {
  int job = 0;
  int index = 0;
  int slot = 0;
  double begin_s = 0;
  double end_s = 0;
};

// Everything that happened in a step.
struct Timeline {
  std::vector<SlotRecord> slots;
  std::vector<BlockRecord> blocks;  // in the order in which the link carries them
};

struct StepResult {
  double step_s = 0;
  double compute_s = 0;  // computing alone
  double communication_s = 0;
  // Compute stood still for communication: for what it needs, and for gradients whose memory it needs. Where
  // the thread that computes also communicates (link.parameters_in_place), all that communication takes of
  // it.
  double exposed_s = 0;
  double slowed_s = 0;  // step - compute - exposed: computing took longer beside communication
  std::uint64_t peak_bytes = 0;
  int peak_slot = 0;
  bool fits = true;  // the limit held in every slot
};

// One step of a rank whose peers do the same at the same time.
//
// Compute goes through the slots in order, from the update by the last step's gradients until this step's are
// there. A slot begins when the one before has ended, every block due by
// then has arrived, and what the slot adds fits the limit beside what is alive (gradients on their way out
// free memory meanwhile). At its begin its blocks join the link's queue; in the update's slot only those of
// updated parameters do, the others at its end. The link carries one block at a
// time, in the order of the queue, and never stops while the queue has one; while it is busy compute runs
// slower by the link's contention. Deterministic; any thread.
StepResult simulate_step(const cost::StepModel& model, const Candidate& plan, std::uint64_t memory_limit,
                         Timeline* timeline = nullptr);

// What a step asks of one unit, as training measures it.
struct UnitForecast {
  // Compute stood still for this unit's blocks: before it needed its parameters, for the memory of its
  // gradients, or after the last backward.
  double exposed_s = 0;
  std::uint64_t peak_bytes = 0;  // of everything on the rank, while the unit computes forward or backward
};

// By unit. The units' exposed times add up to the waits of the step: StepResult::exposed_s, less what an
// engine without a thread of its own takes from computing.
std::vector<UnitForecast> forecast_units(const cost::StepModel& model, const Timeline& timeline);

}  // namespace rondo::simulate
