#pragma once

#include <cstdint>
#include <vector>

#include "rondo/simulate/candidate.h"

namespace rondo::simulate {

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

}  // namespace rondo::simulate
