#include "rondo/parallel/sharded/sharded_model.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/parallel/ddp/coalesced_broadcast.h"
#include "rondo/parallel/sharded/exposed_time.h"

namespace rondo {

std::int64_t ShardedModel::forward_priority(std::size_t unit) const {
  return static_cast<std::int64_t>(position_[unit]);
}

void ShardedModel::begin_step(const LocalBatch& batch) {
  const bool is_first_pass = !in_step_;
  if (in_step_) finish_pass();
  pass_ = is_first_pass ? 0 : pass_ + 1;
  if (launches_) pass_ = std::min(pass_, launches_->micro_batches() - 1);
  batch_ = batch;
  if (is_first_pass) exposed_ns_ = 0;
  spans_.clear();  // a step that is skipped has none
  if (std::exchange(must_meet_, false)) {
    const ExposedTime exposed(exposed_ns_);
    barrier(context_.world());
  }
  if (broadcast_buffers_ && buffers_changed_) {
    broadcast_coalesced(tensors_.buffer_tensors(), context_.world(), 0);
    buffers_changed_ = false;
  }
  weight_.reset();
  announcement_.clear();
  if (batch.synchronise || reduce_every_pass_) announcement_.start({.samples = batch.samples});
  for (Progress& progress : progress_) progress = {.pending = progress.pending};
  missing_.clear();
  next_launch_ = 0;
  in_step_ = true;
  if (std::exchange(whole_, false)) {
    for (const auto& unit : units_) unit->release();
  }
  if (is_first_pass) {
    // Slots are numbered on from step to step, so that what the last one left in the queue stays allowed.
    if (launches_) first_slot_ += launches_->slots();
    slot_ = -1;
    reach(0);
  }
  // The part outside all units has no moment of its own: it is there from beginning to end.
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit]->state() == nullptr) {
      require(unit, +1);
      if (launches_) reach(launches_->forward_slot(pass_, unit));
    }
  }
}

void ShardedModel::before_forward(std::size_t unit) {
  const bool recorded = in_step_ && at::GradMode::is_enabled();
  if (recorded) note_position(unit);
  release_left(unit);
  ++progress_[unit].inside;
  require(unit, +1);
  if (recorded && launches_) reach(launches_->forward_slot(pass_, unit));
}

void ShardedModel::release_left(std::size_t unit) {
  if (!left_) return;
  if (*left_ != unit && !whole_) units_[*left_]->release();
  left_.reset();
}

void ShardedModel::note_position(std::size_t unit) {
  if (order_known_ || progress_[unit].open_calls > 0) return;
  // Units move to where they are seen; what was never seen stays at the end.
  const std::size_t seen = static_cast<std::size_t>(
      std::count_if(progress_.begin(), progress_.end(), [](const Progress& p) { return p.open_calls > 0; }));
  const std::size_t roots = units_.front()->state() == nullptr ? 1 : 0;
  const auto from = std::find(order_.begin(), order_.end(), unit);
  const auto to = order_.begin() + static_cast<std::ptrdiff_t>(std::min(seen + roots, order_.size() - 1));
  if (to < from) std::rotate(to, from, from + 1);
  for (std::size_t i = 0; i < order_.size(); ++i) position_[order_[i]] = i;
}

void ShardedModel::after_forward(std::size_t unit) {
  const bool recorded = in_step_ && at::GradMode::is_enabled();
  if (recorded) ++progress_[unit].open_calls;
  if (--progress_[unit].inside > 0) return;  // a member inside another one
  if (whole_ || !shards_parameters(units_[unit]->sharding())) return;
  // Until its backward, if it has one.
  const bool keeps = units_[unit]->sharding() == Sharding::zero3_keep;
  if (keeps && (recorded || progress_[unit].open_calls > 0)) return;
  // The last unit's backward pass comes next.
  if (recorded && position_[unit] + 1 == order_.size()) return;
  if (joins_several_[unit]) {
    left_ = unit;
  } else if (recorded) {
    units_[unit]->release_until_backward();
  } else {
    units_[unit]->release();
  }
}

void ShardedModel::require(std::size_t unit, int direction) {
  const ExposedTime exposed(exposed_ns_);
  if (progress_[unit].pending) update(unit);
  units_[unit]->start_gather(gather_order(unit, direction));
  if (!launches_) prefetch(unit, direction);
  units_[unit]->finish_gather();
}

void ShardedModel::reach(int slot) {
  if (!launches_ || slot <= slot_) return;
  for (int next = slot_ + 1; next <= slot; ++next) {
    for (const std::size_t unit : launches_->leaving(next)) {
      const ExposedTime exposed(exposed_ns_);
      if (progress_[unit].launched) units_[unit]->finish_gradients(/*accumulate=*/reduce_every_pass_);
    }
    for (const LaunchPlan::Gather& gather : launches_->gathers(next)) {
      units_[gather.unit]->start_gather(planned_order(gather.unit, gather.purpose, gather.micro_batch));
    }
  }
  slot_ = slot;
  scheduler_->reach(first_slot_ + slot);
}

// Slots are numbered on from step to step.
BlockOrder ShardedModel::planned_order(std::size_t unit, cost::JobKind purpose, int micro_batch) const {
  return launches_->order(unit, purpose, micro_batch).later_by(first_slot_);
}

BlockOrder ShardedModel::gather_order(std::size_t unit, int direction) const {
  if (launches_) {
    const auto purpose = direction > 0 ? cost::JobKind::gather_forward : cost::JobKind::gather_backward;
    return planned_order(unit, purpose, pass_);
  }
  return {direction > 0 ? forward_priority(unit) : -forward_priority(unit)};
}

BlockOrder ShardedModel::gradient_order(std::size_t unit) const {
  if (launches_) {
    const bool is_ddp = units_[unit]->sharding() == Sharding::ddp;
    const auto purpose = is_ddp ? cost::JobKind::all_reduce : cost::JobKind::reduce_scatter;
    return planned_order(unit, purpose, pass_);
  }
  // Behind all gathers of this pass, and what the next forward pass needs first before the rest.
  return {static_cast<std::int64_t>(order_.size()) + forward_priority(unit)};
}

BlockOrder ShardedModel::update_order(std::size_t unit) const {
  if (launches_) {
    // Of the next step, whose slot 0 this is.
    return planned_order(unit, cost::JobKind::gather_updated, 0).later_by(launches_->slots());
  }
  return {forward_priority(unit)};
}

// When a message has arrived is known to this rank alone, so this communicates nothing.
void ShardedModel::take_arrived_gradients() {
  if (!defers_) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (progress_[unit].launched && units_[unit]->gradients_arrived())
      units_[unit]->finish_gradients(/*accumulate=*/reduce_every_pass_);
  }
}

void ShardedModel::prefetch(std::size_t unit, int direction) {
  for (int ahead = 1; ahead <= prefetch_; ++ahead) {
    const std::int64_t place = static_cast<std::int64_t>(position_[unit]) + std::int64_t{direction} * ahead;
    if (place < 0 || place >= static_cast<std::int64_t>(order_.size())) return;
    const std::size_t next = order_[static_cast<std::size_t>(place)];
    if (!progress_[next].pending) {
      units_[next]->start_gather(gather_order(next, direction));
    }
  }
}

void ShardedModel::before_backward(std::size_t unit) {
  order_known_ = true;
  release_left(unit);
  if (launches_) reach(launches_->backward_slot(pass_, unit) - 1);
  require(unit, -1);
  if (launches_) reach(launches_->backward_slot(pass_, unit));
}

void ShardedModel::after_backward(std::size_t unit) {
  Progress& progress = progress_[unit];
  if (--progress.open_calls > 0) return;
  units_[unit]->release();
  progress.complete = true;
  launch_complete_units();
  take_arrived_gradients();
  if (launches_) reach(launches_->backward_slot(pass_, unit) + 1);
}

bool ShardedModel::launches(std::size_t unit) const {
  const bool every_pass = reduce_every_pass_ && shards_gradients(units_[unit]->sharding());
  return units_[unit]->trains() && (batch_.synchronise || every_pass);
}

// Between the passes of an accumulation window: what was sent off is added to the shards.
void ShardedModel::finish_pass() {
  if (!reduce_every_pass_) {
    for (const auto& unit : units_) unit->hold_gradients();
    return;
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    progress_[unit].complete = true;
    units_[unit]->release();
  }
  launch_complete_units();
  const ExposedTime exposed(exposed_ns_);
  for (std::size_t i = order_.size(); i-- > 0;) units_[order_[i]]->finish_gradients(/*accumulate=*/true);
}

// In the reverse order of forward, whatever order the backward pass takes: the same on all ranks.
void ShardedModel::launch_complete_units() {
  while (next_launch_ < order_.size()) {
    const std::size_t unit = order_[order_.size() - 1 - next_launch_];
    if (!progress_[unit].complete) return;
    ++next_launch_;
    if (!launches(unit)) continue;
    if (!weight_) weight_ = announcement_.gradient_weight(/*divide_by_active=*/false);
    note_missing_gradients(unit);
    const ExposedTime exposed(exposed_ns_);
    if (!launches_) make_room_for_gradients(unit);
    units_[unit]->launch_gradients(*weight_, gradient_order(unit));
    progress_[unit].launched = true;
  }
}

// A link slower than backward would otherwise leave every unit's whole gradients waiting on every rank, which
// is what these strategies are chosen to avoid.
void ShardedModel::make_room_for_gradients(std::size_t unit) {
  if (gradients_in_flight_ == 0 || !shards_optimizer(units_[unit]->sharding())) return;
  std::vector<std::size_t> under_way;  // the oldest first
  for (auto other = order_.rbegin(); other != order_.rend(); ++other) {
    if (shards_optimizer(units_[*other]->sharding()) && units_[*other]->gradients_under_way()) {
      under_way.push_back(*other);
    }
  }
  const auto limit = static_cast<std::size_t>(gradients_in_flight_);
  for (std::size_t i = 0; i + limit <= under_way.size(); ++i) {
    units_[under_way[i]]->finish_gradients(/*accumulate=*/reduce_every_pass_);
  }
}

void ShardedModel::note_missing_gradients(std::size_t unit) {
  std::vector<std::string> names = units_[unit]->without_gradient();
  if (!names.empty() && !find_unused_) {
    throw UsageError(str("rank ", context_.rank(), ": the backward pass of unit '", units_[unit]->name(),
                         "' is over, but these of its parameters got no gradient: ", join(names, ", "),
                         "; if that is intended, set find_unused_parameters; a parameter that a module "
                         "outside the unit uses must be used inside the unit only"));
  }
  missing_.insert(missing_.end(), std::make_move_iterator(names.begin()),
                  std::make_move_iterator(names.end()));
}

void ShardedModel::finish_backward() {
  in_step_ = false;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    progress_[unit].complete = true;
    units_[unit]->release();
  }
  buffers_changed_ = buffers_changed_ || batch_.synchronise;
  if (!batch_.synchronise) return;
  launch_complete_units();
  if (launches_) reach(launches_->epilogue_slot());
  if (find_unused_) agree_on_unused();
  if (defers_ && !batch_.gradients_are_read) {
    for (Progress& progress : progress_) progress.pending = progress.launched;
    waits_later_ = true;
  } else {
    const ExposedTime exposed(exposed_ns_);
    for (std::size_t i = order_.size(); i-- > 0;) {
      units_[order_[i]]->finish_gradients(/*accumulate=*/reduce_every_pass_);
      units_[order_[i]]->install_gradients(unused_);
    }
  }
}

// A parameter that no rank used keeps no gradient, so that the optimizer passes it by, as one process would.
void ShardedModel::agree_on_unused() {
  at::Tensor used = at::ones({static_cast<std::int64_t>(tensors_.parameters.size())}, at::kInt);
  for (std::size_t i = 0; i < tensors_.parameters.size(); ++i) {
    if (std::find(missing_.begin(), missing_.end(), tensors_.parameters[i].name) != missing_.end()) {
      used[static_cast<std::int64_t>(i)] = 0;
    }
  }
  all_reduce(used, context_.world(), ReduceOp::MAX);
  unused_.clear();
  for (std::size_t i = 0; i < tensors_.parameters.size(); ++i) {
    if (used[static_cast<std::int64_t>(i)].item<int>() == 0) unused_.push_back(tensors_.parameters[i].name);
  }
}

void ShardedModel::collect_records() {
  std::vector<BlockRecord> records = scheduler_->take_records();
  for (const auto& unit : units_) {
    for (BlockRecord& record : unit->take_records()) records.push_back(std::move(record));
  }
  std::stable_sort(records.begin(), records.end(),
                   [](const BlockRecord& a, const BlockRecord& b) { return a.started_ns < b.started_ns; });
  spans_.clear();
  std::int64_t busy = 0;
  std::int64_t covered = 0;
  for (const BlockRecord& record : records) {
    busy += std::max<std::int64_t>(0, record.finished_ns - std::max(record.started_ns, covered));
    covered = std::max(covered, record.finished_ns);
    spans_.push_back({.operation = record.collective,
                      .unit = record.unit,
                      .bucket = static_cast<std::int64_t>(record.index),
                      .bytes = record.bytes,
                      .queued_ns = record.queued_ns,
                      .begin_ns = record.started_ns,
                      .end_ns = record.finished_ns,
                      .waited_ns = record.waited_ns,
                      .exposed_ns = record.exposed_ns});
  }
  times_.exposed = std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(exposed_ns_));
  times_.busy =
      std::max(times_.exposed, std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(busy)));
}

}  // namespace rondo
