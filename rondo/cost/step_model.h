#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// The compute of one training step in order, one slot a unit's forward or backward. A step begins with the
// update by the gradients of the one before:
//   0                       the update; parameters that it changed travel meanwhile, other gathers after it
//   per micro-batch k       forward of units 0 .. U-1, then backward of units U-1 .. 0
//   epilogue                communication after the last backward, no compute
//   end                     all gradients are there, no compute
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

  // Forward or backward of a unit.
  bool is_compute(int slot) const { return slot > 0 && slot < epilogue(); }
  // Of slots that compute a unit.
  int micro_batch(int slot) const { return (slot - 1) / (2 * units); }
  bool is_forward(int slot) const { return (slot - 1) % (2 * units) < units; }
  int unit(int slot) const {
    const int within = (slot - 1) % (2 * units);
    return within < units ? within : 2 * units - 1 - within;
  }
};

// Bytes that a gather or a gradient occupies while it is under way.
enum class Buffers {
  unit,   // the whole unit's, from its first block's launch, to its last block's end: one flat buffer
  block,  // each block's own
};

// What a step is planned or simulated for.
struct StepOptions {
  int ranks = 2;
  int shard_group = 0;    // ranks that share one copy, 0: all; others hold replicas (hybrid sharding)
  int micro_batches = 1;  // forward and backward passes of one step
  // How many slots before its use a parameter may be gathered at the earliest.
  int prefetch_window = 4;
  // A collective is cut into at most so many blocks, none smaller than saturates the link.
  int blocks_per_collective = 16;
  std::uint64_t block_bytes = 0;  // cut into blocks of this size instead, if not 0
  Buffers buffers = Buffers::unit;
};

// The collectives of a step, by what they are for.
enum class JobKind {
  all_reduce,       // gradients of a ddp unit, after its last backward
  reduce_scatter,   // gradients of a sharded unit: zero1 after the last backward, others after each
  gather_updated,   // zero1, zero2: parameters that the optimizer updated, before the next first forward
  gather_forward,   // zero3, zero3_keep
  gather_backward,  // zero3
};
constexpr int kJobKinds = 5;
Collective collective(JobKind kind);
// "all_reduce", "reduce_scatter", "gather_updated", "gather_forward", "gather_backward".
std::string_view name(JobKind kind);

// One collective of a unit in a step, cut into blocks of equal size (the first few a byte longer).
struct Job {
  JobKind kind = JobKind::all_reduce;
  int unit = 0;
  int micro_batch = 0;
  int first = 0;  // slots at whose start its blocks may be launched, both included
  int last = 0;
  int due = 0;  // must be complete before this slot computes
  int blocks = 0;
  std::uint64_t bytes = 0;
  double block_s = 0;  // on the link
  double seconds() const { return blocks * block_s; }
  std::uint64_t block_bytes(int index) const {
    const auto n = static_cast<std::uint64_t>(blocks);
    return bytes / n + (static_cast<std::uint64_t>(index) < bytes % n ? 1 : 0);
  }
  // Of the blocks [from, to).
  std::uint64_t bytes_between(int from, int to) const;
  // Whether a block launched in `slot` is sent when that begins, not when it ends: beside the update there
  // is nothing to send but what it has changed.
  bool overlaps(int slot) const { return slot != Slots::update() || kind == JobKind::gather_updated; }
  bool is_gather_buffer() const {
    return kind == JobKind::gather_forward || kind == JobKind::gather_backward;
  }
};

// What one unit costs under one choice.
struct ChoiceCost {
  UnitChoice choice;
  std::uint64_t persistent_bytes = 0;  // all the time
  // This rank's part of reduced gradients: behind the first backward, until the next step's update.
  std::uint64_t reduced_bytes = 0;
  std::uint64_t held_bytes = 0;     // after forward, until backward
  std::uint64_t forward_bytes = 0;  // during forward: held and workspace
  // During backward at its largest moment, besides the gradients that travel: activations, workspace,
  // gradients before they are copied.
  std::uint64_t backward_bytes = 0;
  double backward_s = 0;             // with recomputation
  double optimizer_s = 0;            // with the unit's share of Profile::overhead_s
  std::vector<int> jobs;             // numbers in StepModel::jobs
  std::uint64_t gathered_bytes = 0;  // parameters that its jobs gather before forward
  double communication_s = 0;
};

// Everything a plan is made of, priced: the choices of every unit and the jobs they bring. What the formulas
// are is in docs/planner/step-model.md. Immutable, so any thread may read it.
struct StepModel {
  Profile profile;
  StepOptions options;
  int shard_group = 1;  // resolved
  Slots slots;
  std::vector<Job> jobs;
  std::vector<std::vector<ChoiceCost>> choices;  // by unit
  std::vector<std::string> notes;                // what a reader must know: sizes outside the measured range

  int units() const { return slots.units; }
  // Whether a unit's whole gradient is gone when it has been reduced. In place the unit keeps it, as
  // ChoiceCost::reduced_bytes.
  bool gradients_leave(Strategy strategy) const {
    return shards_gradients(strategy) && !profile.link.parameters_in_place;
  }
  const ChoiceCost& cost_of(int unit, UnitChoice choice) const;
  bool allows(int unit, UnitChoice choice) const;
  // Seconds of computing alone, without any choice that recomputes.
  double least_compute_s() const;
};

// Throws UsageError for options that cannot be (a shard group that does not divide the ranks).
StepModel make_step_model(Profile profile, const StepOptions& options);

}  // namespace rondo::cost
