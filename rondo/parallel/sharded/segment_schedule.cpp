#include "rondo/parallel/sharded/segment_schedule.h"

#include <algorithm>

namespace rondo {
namespace {

bool is_gather_by_slot(cost::JobKind purpose) {
  return purpose == cost::JobKind::gather_forward || purpose == cost::JobKind::gather_backward;
}

}  // namespace

SlotLaunches::SlotLaunches(const cost::StepPlan& plan, const std::vector<std::string>& units)
    : slots_{static_cast<int>(units.size()), plan.schedule->micro_batches} {
  gathers_.resize(static_cast<std::size_t>(slots_.count()));
  gradients_due_.resize(static_cast<std::size_t>(slots_.count()));
  std::vector<std::size_t> unit_of(plan.units.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    place_.push_back(static_cast<int>(plan.find(units[unit]) - plan.units.data()));
    unit_of[static_cast<std::size_t>(place_.back())] = unit;
  }
  const std::vector<cost::PlannedSegment>& segments = plan.schedule->segments;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const cost::PlannedSegment& segment = segments[i];
    const std::size_t unit = unit_of[segment.unit];
    std::vector<SegmentOrder::Place>& places = places_[{unit, static_cast<std::size_t>(segment.purpose),
                                                        static_cast<std::size_t>(segment.micro_batch)}];
    if (places.empty() && is_gather_by_slot(segment.purpose))
      gathers_[static_cast<std::size_t>(segment.slot)].push_back(
          {unit, segment.purpose, segment.micro_batch});
    places.push_back({segment.slot, static_cast<std::int64_t>(i)});
  }
  for (const cost::PlannedWait& wait : plan.schedule->waits) {
    // Segments are sent in the order of the queue, so all segments before this one are complete too.
    for (std::size_t i = 0; i <= wait.segment; ++i) {
      if (segments[i].purpose != cost::JobKind::reduce_scatter) continue;
      std::vector<std::size_t>& gradients_due = gradients_due_[static_cast<std::size_t>(wait.slot)];
      const std::size_t unit = unit_of[segments[i].unit];
      const auto& places = places_.at({unit, static_cast<std::size_t>(segments[i].purpose),
                                       static_cast<std::size_t>(segments[i].micro_batch)});
      const bool is_last = places.back().priority == static_cast<std::int64_t>(i);
      if (is_last && std::find(gradients_due.begin(), gradients_due.end(), unit) == gradients_due.end())
        gradients_due.push_back(unit);
    }
  }
}

SegmentOrder SlotLaunches::order(std::size_t unit, cost::JobKind purpose, int micro_batch) const {
  const auto found =
      places_.find({unit, static_cast<std::size_t>(purpose), static_cast<std::size_t>(micro_batch)});
  if (found == places_.end()) return {0};
  return {found->second, 0};
}

int SlotLaunches::segments(std::size_t unit) const {
  std::size_t most = 1;
  for (const auto& [key, places] : places_) {
    if (key[0] == unit) most = std::max(most, places.size());
  }
  return static_cast<int>(most);
}

SegmentSchedule::SegmentSchedule(const ShardedUnits& units, const UnitOrder& order, CommunicationQueue& queue,
                                 std::optional<SlotLaunches> plan,
                                 std::function<void(std::size_t unit)> gradients_due)
    : units_(units),
      order_(order),
      queue_(queue),
      plan_(std::move(plan)),
      gradients_due_(std::move(gradients_due)) {}

void SegmentSchedule::begin_pass(bool is_first) {
  if (!plan_) return;
  pass_ = is_first ? 0 : std::min(pass_ + 1, plan_->micro_batches() - 1);
  if (!is_first) return;
  // Slot numbers continue from step to step, so that segments left over from the previous step may still
  // start.
  first_slot_ += plan_->slots();
  slot_ = -1;
  reach(0);
}

void SegmentSchedule::forward(std::size_t unit) {
  if (plan_) reach(plan_->forward_slot(pass_, unit));
}

void SegmentSchedule::before_backward(std::size_t unit) {
  if (plan_) reach(plan_->backward_slot(pass_, unit) - 1);
}

void SegmentSchedule::backward(std::size_t unit) {
  if (plan_) reach(plan_->backward_slot(pass_, unit));
}

void SegmentSchedule::after_backward(std::size_t unit) {
  if (plan_) reach(plan_->backward_slot(pass_, unit) + 1);
}

void SegmentSchedule::epilogue() {
  if (plan_) reach(plan_->epilogue_slot());
}

// The next step begins with the slot of this update.
void SegmentSchedule::update() {
  if (plan_) queue_.reach(first_slot_ + plan_->slots());
}

// Within a step, slots only increase.
void SegmentSchedule::reach(int slot) {
  if (slot <= slot_) return;
  for (int next = slot_ + 1; next <= slot; ++next) {
    for (const std::size_t unit : plan_->gradients_due(next)) gradients_due_(unit);
    for (const SlotLaunches::Gather& gather : plan_->gathers(next))
      units_[gather.unit]->start_gather(planned(gather.unit, gather.purpose, gather.micro_batch));
  }
  slot_ = slot;
  queue_.reach(first_slot_ + slot);
}

SegmentOrder SegmentSchedule::planned(std::size_t unit, cost::JobKind purpose, int micro_batch) const {
  return plan_->order(unit, purpose, micro_batch).later_by(first_slot_);
}

SegmentOrder SegmentSchedule::gather(std::size_t unit, int direction) const {
  if (!plan_) return {direction * position(unit)};
  return planned(unit, direction > 0 ? cost::JobKind::gather_forward : cost::JobKind::gather_backward, pass_);
}

SegmentOrder SegmentSchedule::gradients(std::size_t unit) const {
  // After all gathers of this pass.
  if (!plan_) return {static_cast<std::int64_t>(order_.size()) + position(unit)};
  const bool is_ddp = units_[unit]->sharding() == Sharding::ddp;
  return planned(unit, is_ddp ? cost::JobKind::all_reduce : cost::JobKind::reduce_scatter, pass_);
}

SegmentOrder SegmentSchedule::updated(std::size_t unit) const {
  if (!plan_) return {position(unit)};
  // The gather belongs to slot 0 of the next step.
  return planned(unit, cost::JobKind::gather_updated, 0).later_by(plan_->slots());
}

}  // namespace rondo
