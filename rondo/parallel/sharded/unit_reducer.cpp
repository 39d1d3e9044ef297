#include "rondo/parallel/sharded/unit_reducer.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Returns the parameters that get gradients, unit by unit.
std::vector<ModelTensor> trained_parameters(const std::vector<UnitGroup>& groups) {
  std::vector<ModelTensor> trained;
  for (const UnitGroup& group : groups)
    std::copy_if(group.unit.parameters.begin(), group.unit.parameters.end(), std::back_inserter(trained),
                 [](const ModelTensor& parameter) { return parameter.tensor.requires_grad(); });
  return trained;
}

}  // namespace

UnitReducer::UnitReducer(const ShardedUnits& units, const std::vector<UnitGroup>& groups,
                         const UnitOrder& order, const SegmentSchedule& schedule,
                         StepAnnouncement& announcement, std::int64_t& exposed_ns, Group world,
                         const Options& options)
    : Reducer(trained_parameters(groups), announcement),
      units_(units),
      order_(order),
      schedule_(schedule),
      exposed_ns_(exposed_ns),
      world_(std::move(world)),
      options_(options),
      trained_(trained_parameters(groups)),
      progress_(units.size()) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const std::size_t trained = units_[unit]->trained_parameters();
    unit_of_.insert(unit_of_.end(), trained, unit);
    // Parameters outside all units have no backward hook, so a bucket's last gradient completes it
    // (split_root()).
    const bool is_bucket = options_.in_background && !schedule_.is_planned() &&
                           units_[unit]->state() == nullptr && units_[unit]->sharding() == Sharding::ddp;
    gradients_.push_back(is_bucket ? trained : 0);
  }
}

void UnitReducer::begin_pass(bool synchronises, bool discards) {
  if (has_left_) {
    for (const auto& unit : units_) unit->drop_cleared_gradients();
  }
  progress_.assign(units_.size(), {});
  missing_.clear();
  sent_.clear();
  in_step_ = true;
  has_gradients_ = false;
  synchronises_ = synchronises;
  discards_ = discards;
  watches_arrival_ = !discards && (has_left_ || !synchronises);
  begin(gradients_);
}

std::size_t UnitReducer::called() const {
  return static_cast<std::size_t>(std::count_if(progress_.begin(), progress_.end(),
                                                [](const Progress& each) { return each.open_calls > 0; }));
}

// Detects misplaced calls of the optimizer's zero_grad(). It clears the optimizer's tensors, but gradients of
// a pass that does not synchronise are in the model's own parameters.
void UnitReducer::watch_zero_grad() {
  for (const auto& unit : units_) {
    if (has_left_ && unit->left_gradients_cleared()) {
      throw UsageError(
          "the optimizer's zero_grad() was called between begin_step() and backward(), and an earlier pass "
          "(synchronise = false) has left gradients: call it before begin_step(), so that they are cleared "
          "before this pass adds its own");
    }
  }
  if (synchronises_) return take_left_gradients();
  for (const auto& unit : units_) unit->mark_left_gradients();
  has_left_ = true;
}

void UnitReducer::take_left_gradients() {
  if (!std::exchange(has_left_, false)) return;
  for (const auto& unit : units_) unit->unmark_left_gradients();
}

void UnitReducer::arrived(std::size_t parameter) {
  if (!in_step_) {
    throw UsageError(
        str("backward() gave parameter '", trained_[parameter].name,
            "' a gradient outside of a step: run the forward pass as forward(model, input) of the prepared "
            "or fully sharded model, or call begin_step() before and finish_backward() after. For gradients "
            "that are not of a step use torch::autograd::grad"));
  }
  has_gradients_ = true;
  if (std::exchange(watches_arrival_, false)) watch_zero_grad();
  const std::size_t unit = unit_of_[parameter];
  if (progress_[unit].sent) {
    throw UsageError(
        str("the gradient of '", trained_[parameter].name, "' came after the backward pass of its unit '",
            units_[unit]->name(),
            "', whose gradients were on their way by then: a module outside the unit uses this "
            "parameter, or backward() ran twice in one pass. Use it inside the unit only, or "
            "make one unit of all modules that use it; for several backward passes in a step call "
            "begin_step() before each, with LocalBatch::synchronise = false in all but the last"));
  }
  if (add(unit)) complete(unit);
}

void UnitReducer::complete(std::size_t unit) {
  Reducer::complete(unit, unit + 1);
  take_arrived();
}

void UnitReducer::send(std::size_t unit) {
  const bool every_pass = options_.every_pass && shards_gradients(units_[unit]->sharding());
  if (!units_[unit]->trains() || discards_ || (!synchronises_ && !every_pass)) return;
  const auto weight = [&] {
    const ExposedTime exposed(exposed_ns_);
    return announced_weight(/*divide_by_active=*/false);
  }();
  note_missing(unit);
  const ExposedTime exposed(exposed_ns_);
  if (!schedule_.is_planned()) make_room(unit);
  units_[unit]->start_reduction(weight, schedule_.gradients(unit));
  progress_[unit].sent = true;
}

// Does not communicate, because arrival times differ between ranks.
void UnitReducer::take_arrived() {
  if (!options_.in_background) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (progress_[unit].sent && units_[unit]->gradients_arrived()) finish(unit);
  }
}

// Without this limit, a link slower than backward would leave every unit's whole gradients in memory on every
// rank, which sharding is meant to avoid. All ranks wait for the same unit, even if its gradients have
// already arrived. A rank that continued without waiting could start operations that ranks waiting for that
// unit have not started.
void UnitReducer::make_room(std::size_t unit) {
  if (options_.in_flight == 0 || !shards_optimizer(units_[unit]->sharding())) return;
  const auto limit = static_cast<std::size_t>(options_.in_flight);
  if (sent_.size() >= limit) finish(sent_[sent_.size() - limit]);
  sent_.push_back(unit);
}

void UnitReducer::note_missing(std::size_t unit) {
  std::vector<std::string> names = units_[unit]->without_gradient();
  if (!names.empty() && !options_.find_unused) {
    const bool has_none = names.size() == units_[unit]->trained_parameters();
    throw UsageError(str("rank ", world_.rank(), ": the backward pass of unit '", units_[unit]->name(),
                         "' is over, but these of its parameters got no gradient: ", join(names, ", "),
                         has_none ? "; call backward() between begin_step() and finish_backward()" : "",
                         "; if that is intended, set find_unused_parameters (--find-unused-parameters); a "
                         "parameter that a module outside the unit uses must be used inside the unit only"));
  }
  missing_.insert(missing_.end(), std::make_move_iterator(names.begin()),
                  std::make_move_iterator(names.end()));
}

void UnitReducer::finish_pass() {
  if (discards_) return;
  if (!options_.every_pass) {
    for (const auto& unit : units_) unit->hold_gradients();
    return;
  }
  for (const auto& unit : units_) unit->release();
  complete_all();
  const ExposedTime exposed(exposed_ns_);
  for (std::size_t i = order_.size(); i-- > 0;) finish(order_[i]);
}

void UnitReducer::agree_on_unused(const std::vector<ModelTensor>& parameters) {
  if (!options_.find_unused) return;
  std::vector<bool> used;
  for (const ModelTensor& parameter : parameters)
    used.push_back(std::find(missing_.begin(), missing_.end(), parameter.name) == missing_.end());
  const std::vector<int> ranks = count_ranks(used, world_);
  unused_.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (ranks[i] == 0) unused_.push_back(parameters[i].name);
  }
}

}  // namespace rondo
