#include "rondo/parallel/sharded/sharded_model.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/format/compute_timeline.h"
#include "rondo/nn/autograd_graph.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/sharded/unit_reducer.h"

namespace rondo {
namespace {

// Returns the number of units without a forward pass of their own: the parts of the root.
std::size_t roots(const ShardedUnits& units) {
  return static_cast<std::size_t>(
      std::count_if(units.begin(), units.end(), [](const auto& unit) { return unit->state() == nullptr; }));
}

std::vector<at::Tensor> sharded_parameters(const ShardedUnits& units) {
  std::vector<at::Tensor> parameters;
  for (const auto& unit : units) {
    for (at::Tensor& parameter : unit->sharded_parameters()) parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::vector<ModelTensor> frozen(const std::vector<ModelTensor>& model, const ShardedUnits& units) {
  std::vector<ModelTensor> parameters = model;
  for (const auto& unit : units) {
    for (ModelTensor& parameter : unit->optimized()) parameters.push_back(std::move(parameter));
  }
  std::erase_if(parameters, [](const ModelTensor& parameter) { return parameter.tensor.requires_grad(); });
  return parameters;
}

// Checks before the model is changed.
ModelTensors unprepared(ModelTensors tensors) {
  require_unprepared(tensors.parameters);
  return tensors;
}

}  // namespace

ShardedModel::ShardedModel(std::shared_ptr<torch::nn::Module> module, const PlanMaker& make_plan,
                           Context context, const ShardedOptions& options)
    : ModelParts(context.world()),
      original_(std::move(module)),
      context_(std::move(context)),
      tensors_(unprepared(without_ignored(tensors_of(*original_), options.ignored))),
      announcement_(context_.world()),
      setup_(*original_, tensors_, make_plan, context_, options),
      order_(units_.size(), roots(units_)),
      schedule_(units_, order_, *setup_.queue, setup_.launches,
                [this](std::size_t unit) {
                  const ExposedTime exposed(exposed_ns_);
                  reducer_.finish(unit);
                }),
      reducer_(units_, setup_.groups, order_, schedule_, announcement_, exposed_ns_, context_.world(),
               {.find_unused = options.find_unused_parameters,
                .every_pass = options.reduce_every_pass || setup_.plan.micro_batches() > 1,
                .in_flight = options.gradients_in_flight,
                .in_background = setup_.in_background}),
      optimizer_(units_, order_, options.offload.optimizer ? setup_.files.get() : nullptr),
      forbidden_(sharded_parameters(units_)),
      frozen_(frozen(tensors_.parameters, units_)),
      may_leave_units_out_(options.find_unused_parameters),
      broadcast_buffers_(options.broadcast_buffers && !tensors_.buffers.empty()),
      prefetch_(options.prefetch),
      progress_(units_.size()),
      watched_({[this](std::size_t unit) { before_forward(unit); },
                [this](std::size_t unit) { after_forward(unit); },
                [this](std::size_t unit) { before_backward(unit); },
                [this](std::size_t unit) { after_backward(unit); }}) {
  set_original(*original_);
  const MixedPrecisionPolicy& policy = options.mixed_precision;
  set_casts({.input = policy.cast_forward_inputs ? policy.param_dtype : std::nullopt,
             .output = policy.output_dtype});
  if (!optimizes_shards() && context_.world_size() > 1) {
    drift_ = std::make_shared<DriftCheck>(tensors_.parameters, context_.world());
    announcement_.carry(drift_);
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    for (UnitState* state : setup_.groups[unit].members) {
      UnitCasts casts;
      // Within the model, layers compute with units' outputs, in param_dtype.
      if (&state->module() == original_.get()) casts.outputs = policy.output_dtype;
      if (policy.cast_forward_inputs) casts.inputs = policy.param_dtype;
      watched_.add(*state, unit, casts);
    }
  }
  // Ranks of a host read shared parameters directly, so wait until every rank has written its shards.
  if (shares_memory()) barrier(context_.world());
}

void ShardedModel::start_pass(const LocalBatch& batch) {
  refuse_foreign_step();
  // New gradients replace those that a step has used, or that the model's zero_grad() was meant to clear.
  const bool clears = !batch.discard_gradients && (calls_.has_stepped() || forbidden_.cleared());
  calls_.begin_step(batch, reducer_.in_step() && reducer_.has_gradients());
  refuse_lost_changes();
  if (!batch.discard_gradients) {
    forbidden_.lift();
    scale_.drop();
    announced_ = false;
  }
  together_ = false;
  const bool is_first_pass = !reducer_.in_step();
  if (!is_first_pass) reducer_.finish_pass();
  batch_ = batch;
  if (is_first_pass) exposed_ns_ = 0;
  if (clears) {
    for (const auto& unit : units_) unit->clear_gradients();
  }
  spans_.clear();  // a skipped step has no spans
  await_writers();
  share_buffers();
  announcement_.clear();
  const bool sends = batch.synchronise || (reducer_.sends_every_pass() && !batch.discard_gradients);
  if (sends) announcement_.offer(own_step());
  reducer_.begin_pass(batch.synchronise, batch.discard_gradients);
  for (Progress& progress : progress_) {
    progress.inside = 0;
    progress.recorded_backward = false;
  }
  if (std::exchange(whole_, false)) {
    for (const auto& unit : units_) unit->release();
  }
  schedule_.begin_pass(is_first_pass);
  // A unit that this step leaves out has no forward pass that could run its update. A unit with its first
  // forward pass late in an accumulation window would run its update too late: other units then have
  // gradients of the window, which the optimizer would use too.
  if (is_first_pass && (may_leave_units_out_ || !batch.synchronise)) finish_updates();
  // Parameters outside all units have no hooks, so they stay gathered for the whole pass.
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit]->state() != nullptr) continue;
    require(unit, +1);
    schedule_.forward(unit);
  }
}

void ShardedModel::await_writers() {
  if (!std::exchange(needs_barrier_, false)) return;
  const ExposedTime exposed(exposed_ns_);
  barrier(context_.world());
}

void ShardedModel::share_buffers() {
  if (broadcast_buffers_ && std::exchange(buffers_changed_, false))
    broadcast_coalesced(tensors_.buffer_tensors(), context_.world(), 0);
}

void ShardedModel::announce(const StepTotals& mine) {
  announced_ = has_totals_ = true;
  RankStep step = own_step();
  step.totals = mine;
  announcement_.start(step);
}

StepTotals ShardedModel::totals() {
  if (!has_totals_) throw UsageError(kNothingAnnounced);
  return announcement_.totals();
}

void ShardedModel::refuse_foreign_step() const {
  if (!calls_.gradients_wait() || !optimized_fingerprint_ ||
      *optimized_fingerprint_ == optimized_fingerprint())
    return;
  throw UsageError(
      "this rank's parameters were changed between the backward pass and step(): call step(optimizer) of the "
      "prepared or fully sharded model instead of optimizer.step(), because ranks exchange updated "
      "parameters. With a gradient scaler: scaler.step(optimizer, [&] { prepared->step(optimizer); })");
}

void ShardedModel::reject_unfrozen() const {
  for (const ModelTensor& parameter : frozen_) {
    if (!parameter.tensor.requires_grad()) continue;
    throw UsageError(str("parameter '", parameter.name,
                         "' requires a gradient now, and did not when the model was prepared: its gradients "
                         "are not combined. Set requires_grad before prepare(); to thaw it later, call "
                         "unshard(), destroy the prepared model, prepare() the module again and make a new "
                         "optimizer"));
  }
}

void ShardedModel::refuse_lost_changes() const {
  if (whole_ && full_fingerprint_ && *full_fingerprint_ != full_fingerprint()) {
    throw UsageError(
        "parameters of the model were changed after unshard(), and training would go on without the change: "
        "call SummonFullParams::write_back(), or parts().reload_shards(), before begin_step()");
  }
  for (const auto& unit : units_) {
    const ModelTensor* const moved = unit->moved();
    if (moved == nullptr) continue;
    throw UsageError(str("parameter '", moved->name,
                         "' has other memory than prepare() gave it, so training would go on without it: "
                         "convert, move and load the model before prepare(), or load weights by "
                         "rondo::load_full_state_dict()"));
  }
}

void ShardedModel::require_whole(std::size_t unit, const char* pass) const {
  const bool is_whole = units_[unit]->readable() && !progress_[unit].pending;
  if (is_whole || whole_ || together_) return;
  throw UsageError(
      str(pass, " pass of unit '", units_[unit]->name(),
          "' outside of a step, where its parameters are not on this rank or out of date: make the "
          "forward pass of a step by forward(model, inputs), or call begin_step() before it; to evaluate, "
          "call unshard() on all ranks before"));
}

std::uint64_t ShardedModel::optimized_fingerprint() const {
  std::uint64_t sum = 0;
  for (const auto& unit : units_) sum += unit->optimized_fingerprint();
  return sum;
}

std::uint64_t ShardedModel::full_fingerprint() const {
  std::uint64_t sum = 0;
  for (const auto& unit : units_) sum += unit->full_fingerprint();
  return sum;
}

void ShardedModel::before_forward(std::size_t unit) {
  if (!reducer_.in_step()) require_whole(unit, "forward");
  // Outside of steps, all ranks make the same forward passes or none.
  if (!reducer_.in_step()) await_writers();
  const bool recorded = reducer_.in_step() && at::GradMode::is_enabled();
  if (recorded && !reducer_.was_called(unit)) order_.see(unit, reducer_.called());
  release_left(unit);
  ++progress_[unit].inside;
  require(unit, +1);
  if (recorded) schedule_.forward(unit);
}

void ShardedModel::release_left(std::size_t unit) {
  if (!left_) return;
  if (*left_ != unit && !whole_ && !progress_[*left_].recorded_backward) units_[*left_]->release();
  left_.reset();
}

void ShardedModel::after_forward(std::size_t unit) {
  const bool recorded = reducer_.in_step() && at::GradMode::is_enabled();
  if (recorded) reducer_.note_call(unit);
  if (--progress_[unit].inside > 0) return;  // returned from a nested member
  if (whole_ || progress_[unit].recorded_backward || !shards_parameters(units_[unit]->sharding())) return;
  // Keeps the parameters until the backward pass, if there is one.
  const bool keeps = units_[unit]->sharding() == Sharding::zero3_keep;
  if (keeps && reducer_.was_called(unit)) return;
  // The last unit's backward pass follows immediately.
  if (recorded && order_.is_last(unit)) return;
  if (setup_.groups[unit].members.size() > 1) {
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
  units_[unit]->start_gather(schedule_.gather(unit, direction));
  if (!schedule_.is_planned()) prefetch(unit, direction);
  units_[unit]->finish_gather();
}

void ShardedModel::prefetch(std::size_t unit, int direction) {
  for (int ahead = 1; ahead <= prefetch_; ++ahead) {
    const std::int64_t place = forward_priority(unit) + std::int64_t{direction} * ahead;
    if (place < 0 || place >= static_cast<std::int64_t>(order_.size())) return;
    const std::size_t next = order_[static_cast<std::size_t>(place)];
    if (!progress_[next].pending) units_[next]->start_gather(schedule_.gather(next, direction));
  }
}

// A partial backward pass is autograd::grad(), which computes gradients of chosen tensors: afterwards no
// parameter's gradient is complete. With create_graph the pass records operations on which the loss may
// depend, as a gradient penalty does. Backward may then re-enter the unit without a call of its hooks.
void ShardedModel::note_backward(std::size_t unit) {
  Progress& progress = progress_[unit];
  progress.partial = !reducer_.in_step() || is_partial_backward();
  if (!reducer_.in_step() || !at::GradMode::is_enabled()) return;
  if (schedule_.is_planned()) {
    throw UsageError(str("the schedule of a plan has a place for one backward pass of unit '",
                         units_[unit]->name(),
                         "', and this one is recorded for a second one (create_graph): train by zero1, zero2 "
                         "or zero3, or by a plan without a schedule"));
  }
  progress.recorded_backward = true;
}

void ShardedModel::before_backward(std::size_t unit) {
  note_backward(unit);
  if (!reducer_.in_step()) {
    require_whole(unit, "backward");
    release_left(unit);
    return require(unit, -1);
  }
  order_.fix();
  release_left(unit);
  schedule_.before_backward(unit);
  require(unit, -1);
  schedule_.backward(unit);
}

void ShardedModel::after_backward(std::size_t unit) {
  const bool was_last = reducer_.in_step() && reducer_.end_call(unit);
  if (progress_[unit].recorded_backward) return;  // complete() is called in finish_backward()
  if (progress_[unit].partial) {
    if (!whole_) units_[unit]->release();
    return;
  }
  if (!was_last) return;
  units_[unit]->release();
  reducer_.complete(unit);
  schedule_.after_backward(unit);
}

void ShardedModel::finish_pass() {
  calls_.finish_backward();
  reject_unfrozen();
  if (batch_.synchronise) has_totals_ = announced_;
  if (!batch_.synchronise && reducer_.sends_every_pass()) reducer_.finish_pass();
  reducer_.end_step();
  for (const auto& unit : units_) unit->release();
  buffers_changed_ = buffers_changed_ || batch_.synchronise;
  if (!batch_.synchronise) return;
  reducer_.take_left_gradients();
  reducer_.complete_all();
  schedule_.epilogue();
  reducer_.agree_on_unused(tensors_.parameters);
  if (drift_) drift_->after_pass(announcement_.carries_samples());
  waits_later_ = setup_.in_background && !batch_.gradients_are_read;
  if (waits_later_) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
      progress_[unit].pending = reducer_.was_sent(unit);
  } else {
    install_gradients();
  }
  forbidden_.lay();
  optimized_fingerprint_ = optimized_fingerprint();
}

void ShardedModel::install_gradients() {
  const ExposedTime exposed(exposed_ns_);
  for (std::size_t i = order_.size(); i-- > 0;) {
    reducer_.finish(order_[i]);
    units_[order_[i]]->install_gradients(reducer_.unused());
  }
  scale_.take(units_);
}

void ShardedModel::install_gradients_now() {
  if (!std::exchange(waits_later_, false)) return;
  for (Progress& progress : progress_) progress.pending = false;
  install_gradients();
}

double ShardedModel::clip_combined(double max_norm) {
  calls_.clip_gradients();
  install_gradients_now();
  return optimizer_.clip_gradients(max_norm, environment_.shard_group);
}

void ShardedModel::apply_step(torch::optim::Optimizer& optimizer) {
  optimizer_.check(optimizer, tensors_.parameters);
  if (!calls_.step()) {
    ++steps_;
    last_scale_ = scale_.factor();
    scale_.drop();
  } else if (schedule_.is_planned()) {
    throw UsageError(
        "a plan has one optimizer: make one with several parameter groups, and call step() once");
  } else {
    // The engine may still be reading the result of the previous step.
    for (const auto& unit : units_) {
      if (unit->gathering()) unit->finish_gather();
    }
  }
  forbidden_.lift();
  schedule_.update();
  if (std::exchange(waits_later_, false)) {
    pending_optimizer_ = &optimizer;
    // Updates sharded units first, in the order of need: each unit's parameters are sent as soon as its
    // gradients are complete, while later ones are in flight. Gradients of replicated units stay in flight
    // until they are needed, unless a plan schedules other traffic for that time.
    for (const std::size_t unit : order_) {
      const bool now = schedule_.is_planned() || shards_optimizer(units_[unit]->sharding());
      if (progress_[unit].pending && now) update(unit);
      if (progress_[unit].pending) units_[unit]->conceal();
    }
  } else {
    optimizer_.step(optimizer);
    for (const std::size_t unit : order_) {
      // The plan's memory model counts gradients from their backward pass to the update.
      if (schedule_.is_planned()) units_[unit]->remove_gradients();
      after_update(unit);
    }
  }
  // The caller's own loop may read parameters now.
  if (batch_.gradients_are_read) await_writers();
  collect_spans();
}

void ShardedModel::update(std::size_t unit) {
  ShardedUnit& updated = *units_[unit];
  updated.reveal();
  {
    const ExposedTime exposed(exposed_ns_);
    reducer_.finish(unit);
  }
  updated.install_gradients(reducer_.unused());
  optimizer_.step(*pending_optimizer_, updated);
  updated.remove_gradients();
  progress_[unit].pending = false;
  after_update(unit);
}

void ShardedModel::finish_updates() {
  for (const std::size_t unit : order_) {
    if (progress_[unit].pending) update(unit);
  }
}

void ShardedModel::after_update(std::size_t unit) {
  ShardedUnit& updated = *units_[unit];
  if (updated.mapped()) needs_barrier_ = true;
  updated.mark_updated();
  if (!updated.ready()) updated.conceal();
  if (!shards_parameters(updated.sharding())) updated.start_gather(schedule_.updated(unit));
}

void ShardedModel::collect_spans() {
  spans_ = setup_.queue->take_spans();
  std::stable_sort(spans_.begin(), spans_.end(),
                   [](const TraceSpan& a, const TraceSpan& b) { return a.begin_ns < b.begin_ns; });
  times_.exposed = std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(exposed_ns_));
  times_.busy = std::max(times_.exposed, time_under_way(spans_));
}

}  // namespace rondo
