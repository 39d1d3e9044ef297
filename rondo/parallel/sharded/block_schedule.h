#pragma once

#include <functional>
#include <optional>

#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/slot_launches.h"
#include "rondo/parallel/sharded/unit_order.h"

namespace rondo {

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
