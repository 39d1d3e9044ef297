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

// The schedule of a plan in terms of a model's units: what is launched at the start of which slot, and in
// which place of the queue each block stands. No tensors.
class SlotLaunches {
 public:
  // `units`: the model's names; each is in the plan, whose own order is that of the slots. `plan.schedule`
  // is there.
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

  // A gather of parameters that a slot begins.
  struct Gather {
    std::size_t unit = 0;
    cost::JobKind purpose = cost::JobKind::gather_forward;
    int micro_batch = 0;
  };
  const std::vector<Gather>& gathers(int slot) const { return gathers_[static_cast<std::size_t>(slot)]; }
  // Units whose gradients must be gone before a slot begins.
  const std::vector<std::size_t>& gradients_due(int slot) const {
    return gradients_due_[static_cast<std::size_t>(slot)];
  }

  // Empty places where the plan has no such collective.
  BlockOrder order(std::size_t unit, cost::JobKind purpose, int micro_batch) const;
  // Blocks that a unit's collectives are cut into; 1 where it has none.
  int blocks(std::size_t unit) const;

 private:
  using Key = std::array<std::size_t, 3>;  // unit, purpose, micro-batch

  cost::Slots slots_;
  std::vector<int> place_;  // by unit: its number in the plan
  std::map<Key, std::vector<BlockOrder::Place>> places_;
  std::vector<std::vector<Gather>> gathers_;             // by slot
  std::vector<std::vector<std::size_t>> gradients_due_;  // by slot
};

// When and in which place of the queue the blocks of a step go out. By need: gathers in the order of their
// use, then gradients, what the next forward pass needs first before the rest. Or by the schedule of a plan:
// at each slot that the computation comes to, what the plan launches there is queued. One thread.
class BlockSchedule {
 public:
  // All but `plan` outlive the object. `gradients_due` is called with a unit whose gradients have to be gone,
  // under a plan.
  BlockSchedule(const ShardedUnits& units, const UnitOrder& order, CommunicationQueue& queue,
                std::optional<SlotLaunches> plan, std::function<void(std::size_t unit)> gradients_due);

  bool is_planned() const { return plan_.has_value(); }

  // Where the computation has come to.
  void begin_pass(bool is_first);
  void forward(std::size_t unit);
  void before_backward(std::size_t unit);
  void backward(std::size_t unit);
  void after_backward(std::size_t unit);
  void epilogue();
  void update();

  // Of a gather for forward (+1) or backward (-1), of gradients, of parameters that were updated.
  BlockOrder gather(std::size_t unit, int direction) const;
  BlockOrder gradients(std::size_t unit) const;
  BlockOrder updated(std::size_t unit) const;

 private:
  void reach(int slot);
  BlockOrder planned(std::size_t unit, cost::JobKind purpose, int micro_batch) const;
  std::int64_t position(std::size_t unit) const { return static_cast<std::int64_t>(order_.position(unit)); }

  const ShardedUnits& units_;
  const UnitOrder& order_;
  CommunicationQueue& queue_;
  const std::optional<SlotLaunches> plan_;
  const std::function<void(std::size_t unit)> gradients_due_;
  int slot_ = 0;                 // of the plan
  std::int64_t first_slot_ = 0;  // of the step, counted over all steps
  int pass_ = 0;                 // micro-batch of this step
};

}  // namespace rondo
