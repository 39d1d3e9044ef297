#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/cost/step_model.h"
#include "rondo/cost/step_plan.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/schedule/policy.h"
#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/unit_plans.h"

namespace rondo {

// The schedule of a plan, mapped to a model's units: the collectives launched at the start of each slot, and
// the position of each segment in the queue. Holds no tensors.
class SlotLaunches {
 public:
  // `units`: the names of the model's units. All must be in the plan, and slots follow the plan's own order
  // of units. `plan.schedule` must be set.
  SlotLaunches(const cost::StepPlan& plan, const std::vector<std::string>& units);

  int micro_batches() const { return slots_.micro_batches; }
  int forward_slot(int micro_batch, std::size_t unit) const {
    return slots_.forward(micro_batch, place_[unit]);
  }
  int backward_slot(int micro_batch, std::size_t unit) const {
    return slots_.backward(micro_batch, place_[unit]);
  }
  int epilogue_slot() const { return slots_.epilogue(); }
  int slots() const { return slots_.count(); }

  // A gather of parameters launched at a slot.
  struct Gather {
    std::size_t unit = 0;
    cost::JobKind purpose = cost::JobKind::gather_forward;
    int micro_batch = 0;
  };
  const std::vector<Gather>& gathers(int slot) const { return gathers_[static_cast<std::size_t>(slot)]; }
  // Returns the units whose gradients must be reduced before the slot begins.
  const std::vector<std::size_t>& gradients_due(int slot) const {
    return gradients_due_[static_cast<std::size_t>(slot)];
  }

  // Returns the positions of a collective's segments; without positions if the plan has no such collective.
  SegmentOrder order(std::size_t unit, cost::JobKind purpose, int micro_batch) const;
  // Returns the number of segments that a unit's collectives are cut into; 1 if the unit has none.
  int segments(std::size_t unit) const;

 private:
  using Key = std::array<std::size_t, 3>;  // unit, purpose, micro-batch

  cost::Slots slots_;
  std::vector<int> place_;  // index of each unit in the plan
  std::map<Key, std::vector<SegmentOrder::Place>> places_;
  std::vector<std::vector<Gather>> gathers_;             // by slot
  std::vector<std::vector<std::size_t>> gradients_due_;  // by slot
};

// Decides when the segments of a step are queued, and with which priority. Without a plan, segments are
// queued when they are needed: gathers in the order of their use, then gradients in the order of the next
// forward pass. With a plan, each slot that the computation reaches queues the segments that the plan
// launches there. Not thread-safe.
class SegmentSchedule {
 public:
  // All arguments but `plan` must outlive the object. `gradients_due` is called with each unit whose
  // gradients must be reduced; only with a plan.
  SegmentSchedule(const ShardedUnits& units, const UnitOrder& order, CommunicationQueue& queue,
                  std::optional<SlotLaunches> plan, std::function<void(std::size_t unit)> gradients_due);

  bool is_planned() const { return plan_.has_value(); }

  // Reports of the computation's progress, in the order of a step.
  void begin_pass(bool is_first);
  void forward(std::size_t unit);
  void before_backward(std::size_t unit);
  void backward(std::size_t unit);
  void after_backward(std::size_t unit);
  void epilogue();
  void update();

  // Return the order of the segments of a gather for forward (direction +1) or backward (-1), of gradients,
  // and of updated parameters.
  SegmentOrder gather(std::size_t unit, int direction) const;
  SegmentOrder gradients(std::size_t unit) const;
  SegmentOrder updated(std::size_t unit) const;

 private:
  void reach(int slot);
  SegmentOrder planned(std::size_t unit, cost::JobKind purpose, int micro_batch) const;
  std::int64_t position(std::size_t unit) const { return static_cast<std::int64_t>(order_.position(unit)); }

  const ShardedUnits& units_;
  const UnitOrder& order_;
  CommunicationQueue& queue_;
  const std::optional<SlotLaunches> plan_;
  const std::function<void(std::size_t unit)> gradients_due_;
  int slot_ = 0;                 // current slot of the plan
  std::int64_t first_slot_ = 0;  // first slot of the current step, counted over all steps
  int pass_ = 0;                 // current micro-batch of the step
};

}  // namespace rondo
