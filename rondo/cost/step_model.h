#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// The compute of one training step in order, one slot for each unit's forward or backward. A step begins with
// the update by the gradients of the previous step:
//   0                       the update; gathers of updated parameters overlap it, other gathers follow it
//   per micro-batch k       forward of units 0 .. U-1, then backward of units U-1 .. 0
//   epilogue                communication after the last backward, no compute
//   end                     all gradients are reduced, no compute
struct Slots {
  int units = 0;
  int micro_batches = 1;

  static constexpr int update() { return 0; }
  int forward(int micro_batch, int unit) const { return 1 + 2 * units * micro_batch + unit; }
  int backward(int micro_batch, int unit) const {
    return 1 + 2 * units * micro_batch + units + (units - 1 - unit);
  }
  int epilogue() const { return 1 + 2 * units * micro_batches; }
  int end() const { return epilogue() + 1; }
  int count() const { return end() + 1; }

  // Returns true for a forward or backward of a unit.
  bool is_compute(int slot) const { return slot > 0 && slot < epilogue(); }
  // The next three take slots with is_compute() only.
  int micro_batch(int slot) const { return (slot - 1) / (2 * units); }
  bool is_forward(int slot) const { return (slot - 1) % (2 * units) < units; }
  int unit(int slot) const {
    const int within = (slot - 1) % (2 * units);
    return within < units ? within : 2 * units - 1 - within;
  }
};

// Lifetime of the buffers of gathers and gradients in flight.
enum class Buffers {
  unit,     // one flat buffer for the whole unit, from the first segment's launch to the last segment's
            // completion
  segment,  // one buffer for each segment
};

// Options of a planned or simulated step.
struct StepOptions {
  int ranks = 2;
  int shard_group = 0;    // ranks that share one copy, 0: all; other groups hold replicas (hybrid sharding)
  int micro_batches = 1;  // forward and backward passes of one step
  // Largest number of slots before its use in which a parameter may be gathered.
  int prefetch_window = 4;
  // Largest number of segments of one collective. No segment is smaller than saturates the link.
  int segments_per_collective = 16;
  std::uint64_t segment_bytes = 0;  // segment size instead of the above, if not 0
  Buffers buffers = Buffers::unit;
};

// The collectives of a step, by purpose.
enum class JobKind {
  all_reduce,       // gradients of a ddp unit, after its last backward
  reduce_scatter,   // gradients of a sharded unit: zero1 after the last backward, others after each
  gather_updated,   // zero1, zero2: updated parameters, before the next first forward
  gather_forward,   // zero3, zero3_keep
  gather_backward,  // zero3
};
constexpr int kJobKinds = 5;
Collective collective(JobKind kind);
// Returns "all_reduce", "reduce_scatter", "gather_updated", "gather_forward" or "gather_backward".
std::string_view name(JobKind kind);

// One collective of a unit in a step, cut into segments of equal size (the first few a byte longer).
struct Job {
  JobKind kind = JobKind::all_reduce;
  int unit = 0;
  int micro_batch = 0;
  int first = 0;  // first slot at whose start its segments may be launched; `last` is the last one
  int last = 0;
  int due = 0;  // slot that must not compute before completion
  int segments = 0;
  std::uint64_t bytes = 0;
  double segment_s = 0;  // time of one segment on the link
  double seconds() const { return segments * segment_s; }
  std::uint64_t segment_bytes(int index) const {
    const auto n = static_cast<std::uint64_t>(segments);
    return bytes / n + (static_cast<std::uint64_t>(index) < bytes % n ? 1 : 0);
  }
  // Returns the bytes of the segments [from, to).
  std::uint64_t bytes_between(int from, int to) const;
  // Returns true if a segment launched in `slot` is sent when the slot begins, false if when it ends. During
  // the update only the parameters that it changes can be sent.
  bool overlaps(int slot) const { return slot != Slots::update() || kind == JobKind::gather_updated; }
  bool is_gather_buffer() const {
    return kind == JobKind::gather_forward || kind == JobKind::gather_backward;
  }
};

// Costs of one unit under one choice.
struct ChoiceCost {
  UnitChoice choice;
  std::uint64_t persistent_bytes = 0;  // always allocated
  // This rank's shard of reduced gradients, from the first backward to the next step's update.
  std::uint64_t reduced_bytes = 0;
  std::uint64_t held_bytes = 0;     // from forward to backward
  std::uint64_t forward_bytes = 0;  // during forward: held_bytes and workspace
  // Peak during backward, without the buffers of gradients in flight: activations, workspace, and gradients
  // before their copy.
  std::uint64_t backward_bytes = 0;
  double backward_s = 0;             // with recomputation
  double optimizer_s = 0;            // with the unit's share of Profile::overhead_s
  std::vector<int> jobs;             // indices in StepModel::jobs
  std::uint64_t gathered_bytes = 0;  // parameters gathered before forward
  double communication_s = 0;
};

// Priced input of the planner: the choices of every unit and their jobs. docs/planner/step-model.md has the
// formulas. Immutable, hence safe to read from any thread.
struct StepModel {
  Profile profile;
  StepOptions options;
  int shard_group = 1;  // resolved
  Slots slots;
  std::vector<Job> jobs;
  std::vector<std::vector<ChoiceCost>> choices;  // by unit
  std::vector<std::string> notes;  // notes for the user, such as sizes outside the measured range

  int units() const { return slots.units; }
  // Returns true if a unit's full gradient is released after its reduction. With parameters in place the unit
  // keeps it, as ChoiceCost::reduced_bytes.
  bool gradients_leave(Strategy strategy) const {
    return shards_gradients(strategy) && !profile.link.parameters_in_place;
  }
  const ChoiceCost& cost_of(int unit, UnitChoice choice) const;
  bool allows(int unit, UnitChoice choice) const;
  // Returns the seconds of compute alone, with the fastest update and without recomputation.
  double least_compute_s() const;
};

// Throws UsageError for invalid options (a shard group that does not divide the ranks).
StepModel make_step_model(Profile profile, const StepOptions& options);

}  // namespace rondo::cost
