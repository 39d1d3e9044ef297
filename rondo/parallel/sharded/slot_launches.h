#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rondo/cost/step_model.h"
#include "rondo/cost/step_plan.h"
#include "rondo/parallel/schedule/block.h"

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

}  // namespace rondo
