#include "rondo/parallel/sharded/block_schedule.h"

#include <algorithm>

namespace rondo {

BlockSchedule::BlockSchedule(const ShardedUnits& units, const UnitOrder& order, CommunicationQueue& queue,
                             std::optional<SlotLaunches> plan,
                             std::function<void(std::size_t unit)> gradients_due)
    : units_(units),
      order_(order),
      queue_(queue),
      plan_(std::move(plan)),
      gradients_due_(std::move(gradients_due)) {}

void BlockSchedule::begin_pass(bool is_first) {
  if (!plan_) return;
  pass_ = is_first ? 0 : std::min(pass_ + 1, plan_->micro_batches() - 1);
  if (!is_first) return;
  // Slots are numbered on from step to step, so that what the last one left in the queue stays allowed.
  first_slot_ += plan_->slots();
  slot_ = -1;
  reach(0);
}

void BlockSchedule::forward(std::size_t unit) {
  if (plan_) reach(plan_->forward_slot(pass_, unit));
}

void BlockSchedule::before_backward(std::size_t unit) {
  if (plan_) reach(plan_->backward_slot(pass_, unit) - 1);
}

void BlockSchedule::backward(std::size_t unit) {
  if (plan_) reach(plan_->backward_slot(pass_, unit));
}

void BlockSchedule::after_backward(std::size_t unit) {
  if (plan_) reach(plan_->backward_slot(pass_, unit) + 1);
}

void BlockSchedule::epilogue() {
  if (plan_) reach(plan_->epilogue_slot());
}

// The next step begins with its slot for the update.
void BlockSchedule::update() {
  if (plan_) queue_.reach(first_slot_ + plan_->slots());
}

// Slots of a step only go up.
void BlockSchedule::reach(int slot) {
  if (slot <= slot_) return;
  for (int next = slot_ + 1; next <= slot; ++next) {
    for (const std::size_t unit : plan_->gradients_due(next)) gradients_due_(unit);
    for (const SlotLaunches::Gather& gather : plan_->gathers(next))
      units_[gather.unit]->start_gather(planned(gather.unit, gather.purpose, gather.micro_batch));
  }
  slot_ = slot;
  queue_.reach(first_slot_ + slot);
}

BlockOrder BlockSchedule::planned(std::size_t unit, cost::JobKind purpose, int micro_batch) const {
  return plan_->order(unit, purpose, micro_batch).later_by(first_slot_);
}

BlockOrder BlockSchedule::gather(std::size_t unit, int direction) const {
  if (!plan_) return {direction * position(unit)};
  return planned(unit, direction > 0 ? cost::JobKind::gather_forward : cost::JobKind::gather_backward, pass_);
}

BlockOrder BlockSchedule::gradients(std::size_t unit) const {
  // Behind all gathers of this pass.
  if (!plan_) return {static_cast<std::int64_t>(order_.size()) + position(unit)};
  const bool is_ddp = units_[unit]->sharding() == Sharding::ddp;
  return planned(unit, is_ddp ? cost::JobKind::all_reduce : cost::JobKind::reduce_scatter, pass_);
}

BlockOrder BlockSchedule::updated(std::size_t unit) const {
  if (!plan_) return {position(unit)};
  // Of the next step, whose slot 0 this is.
  return planned(unit, cost::JobKind::gather_updated, 0).later_by(plan_->slots());
}

}  // namespace rondo
