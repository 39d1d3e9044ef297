#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/gradients/drift_check.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/sharded/forbidden_access.h"
#include "rondo/parallel/sharded/gradient_scale.h"
#include "rondo/parallel/sharded/segment_schedule.h"
#include "rondo/parallel/sharded/shard_optimizer.h"
#include "rondo/parallel/sharded/sharded_setup.h"
#include "rondo/parallel/sharded/unit_plans.h"
#include "rondo/parallel/sharded/unit_reducer.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/step_calls.h"

namespace rondo {

// A UnitObserver that forwards events of a model's units with the unit's number.
class UnitWatch final : public UnitObserver {
 public:
  struct Events {
    std::function<void(std::size_t unit)> before_forward;
    std::function<void(std::size_t unit)> after_forward;
    std::function<void(std::size_t unit)> before_backward;
    std::function<void(std::size_t unit)> after_backward;
  };
  explicit UnitWatch(Events events) : events_(std::move(events)) {}
  void add(const UnitState& state, std::size_t unit) { units_.emplace(&state, unit); }

  void pre_forward(UnitState& state) override { events_.before_forward(units_.at(&state)); }
  void post_forward(UnitState& state) override { events_.after_forward(units_.at(&state)); }
  void pre_backward(UnitState& state) override { events_.before_backward(units_.at(&state)); }
  void post_backward(UnitState& state) override { events_.after_backward(units_.at(&state)); }

 private:
  const Events events_;
  std::map<const UnitState*, std::size_t> units_;
};

// Registers units with a UnitWatch and sets casts of their inputs and outputs, for the lifetime of the
// object.
class WatchedUnits {
 public:
  explicit WatchedUnits(UnitWatch::Events events) : watch_(std::make_shared<UnitWatch>(std::move(events))) {}
  ~WatchedUnits() {
    for (UnitState* state : states_) {
      state->detach(watch_);
      state->set_casts({});
    }
  }
  WatchedUnits(const WatchedUnits&) = delete;
  WatchedUnits& operator=(const WatchedUnits&) = delete;

  void add(UnitState& state, std::size_t unit, const UnitCasts& casts) {
    state.set_casts(casts);
    watch_->add(state, unit);
    state.attach(watch_);
    states_.push_back(&state);
  }

 private:
  std::shared_ptr<UnitWatch> watch_;
  std::vector<UnitState*> states_;
};

// A model whose units are replicated or sharded, each by its own strategy. It observes the units. It gathers
// a unit's parameters before their use, prefetches those of the next units, and frees parameters. When a
// unit's backward pass is over, it launches the reduction of the unit's gradients.
//
// A step whose gradients are not read (LocalBatch::gradients_are_read is false) ends without waiting for
// gradients if the engine works in the background. Before a unit's next forward pass, its gradients are
// waited for, its part of the optimizer's step runs, and its parameters are gathered (DeAR). If that forward
// pass may come after gradients of the next step, or not at all, the parts of all units run when the next
// step begins.
//
// With the schedule of a plan, and an engine that works in the background, gathers and segments start at
// their slots. All gradients are then complete before the optimizer runs, as the planner assumes.
class ShardedModel final : public PreparedModel, private ModelParts {
 public:
  // Throws UsageError for a plan that does not fit the model, and MismatchError if ranks have different
  // models. Collective.
  ShardedModel(std::shared_ptr<torch::nn::Module> module, const PlanMaker& make_plan, Context context,
               const ShardedOptions& options);

  torch::nn::Module& module() override { return *setup_.optimized; }
  void announce(const StepTotals& mine) override;
  StepTotals totals() override;
  ModelParts& parts() override { return *this; }
  CommunicationState communication_state() const override;
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override;
  CommunicationTimes communication_times() const override { return times_; }
  std::vector<TraceSpan> communication_spans() const override { return spans_; }

 private:
  void start_pass(const LocalBatch& batch) override;
  void finish_pass() override;
  double clip_combined(double max_norm) override;
  void apply_step(torch::optim::Optimizer& optimizer) override;

  // ModelParts, in sharded_model_state.cpp.
  void flush_for(ForwardPasses passes) override;
  void take_values(NewValues values) override;
  PartsTraits traits() const override;
  NormSum norm_sum() override;
  std::vector<Shard> shards() override;
  std::vector<Shard> full_copies() override;
  void give_back_model() override;
  std::vector<ModelTensor> buffers() override { return tensors_.buffers; }

  struct Progress {
    int inside = 0;        // number of running forward calls of its members
    bool pending = false;  // gradients are in flight, and the optimizer's step of the unit is still to run
    bool partial = false;  // the current backward pass in the unit computes gradients of chosen tensors only
    // A backward pass was recorded in the unit (create_graph), so another one may follow at any time of this
    // pass.
    bool recorded_backward = false;
  };

  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  void after_backward(std::size_t unit);
  // Records the kind of backward pass that enters the unit.
  void note_backward(std::size_t unit);
  // Blocks until no rank writes to parameters that others read without a message.
  void await_writers();

  // Makes the unit's parameters readable and starts gathering those of the next units in `direction`.
  void require(std::size_t unit, int direction);
  void prefetch(std::size_t unit, int direction);
  // Frees the joined unit that the forward pass has left, when the forward pass has continued with `unit`.
  void release_left(std::size_t unit);
  // Runs the optimizer's step of one unit after waiting for its gradients.
  void update(std::size_t unit);
  void after_update(std::size_t unit);
  // Runs update() for all units with a pending step.
  void finish_updates();
  // Waits for the gradients of all units and installs them for the optimizer.
  void install_gradients();
  // Calls install_gradients() if it was deferred, for a caller that reads gradients now.
  void install_gradients_now();
  // Throw UsageError: for an optimizer that changed shards without step(); for a parameter that was frozen in
  // the constructor and requires a gradient now; for changes that would be lost.
  void refuse_foreign_step() const;
  void reject_unfrozen() const;
  void refuse_lost_changes() const;
  // Throws UsageError for a forward or backward pass outside of a step if the unit's parameters are not
  // complete here.
  void require_whole(std::size_t unit, const char* pass) const;
  // Returns this rank's announcement of the step.
  RankStep own_step() const { return {.samples = batch_.samples, .steps = steps_, .scale = last_scale_}; }
  std::uint64_t optimized_fingerprint() const;
  std::uint64_t full_fingerprint() const;
  // Copies rank 0's buffers to all ranks, if a step has changed them.
  void share_buffers();
  bool shards_optimizer_state() const { return optimizer_.shards_state(); }
  std::int64_t forward_priority(std::size_t unit) const {
    return static_cast<std::int64_t>(order_.position(unit));
  }
  void collect_spans();
  // Returns the state of the gradients' codec by name; the tensors are not copied.
  CommState gradient_memory() const;

  std::shared_ptr<torch::nn::Module> original_;
  Context context_;
  ModelTensors tensors_;  // of the original module, without ignored ones
  StepAnnouncement announcement_;
  ShardedSetup setup_;
  const UnitEnvironment& environment_ = setup_.environment;
  const ShardedUnits& units_ = setup_.units;
  std::int64_t exposed_ns_ = 0;  // of the current step
  UnitOrder order_;
  SegmentSchedule schedule_;
  UnitReducer reducer_;
  ShardOptimizer optimizer_;
  ForbiddenGradients forbidden_;
  // Frozen parameters of the model, and the optimizer's tensors for them.
  const std::vector<ModelTensor> frozen_;
  std::shared_ptr<DriftCheck> drift_;  // set only if every rank's optimizer updates the whole model
  const bool may_leave_units_out_;     // whether a step may leave parameters unused
  const bool broadcast_buffers_;
  const int prefetch_;

  std::vector<Progress> progress_;  // by unit
  // joined unit without a running member, kept gathered for its next member
  std::optional<std::size_t> left_;
  LocalBatch batch_;
  StepCalls calls_;
  std::int64_t steps_ = 0;  // number of steps taken
  GradientScale scale_;
  std::optional<double> last_scale_;                    // factor applied to the last step's gradients
  bool announced_ = false;                              // whether announce() was called since begin_step()
  bool has_totals_ = false;                             // whether the last step has totals
  std::optional<std::uint64_t> optimized_fingerprint_;  // at the end of the reduction; empty: unknown
  std::optional<std::uint64_t> full_fingerprint_;       // at unshard() or reload_shards(); empty: unknown
  bool together_ = false;      // set by flush(): all ranks make the same forward passes
  bool whole_ = false;         // set by unshard()
  bool needs_barrier_ = true;  // set if ranks have written parameters that others read without a message
  bool waits_later_ = false;   // whether this step's gradients are waited for after finish_backward()
  bool buffers_changed_ = true;
  torch::optim::Optimizer* pending_optimizer_ = nullptr;  // optimizer of the pending units
  CommunicationTimes times_;
  std::vector<TraceSpan> spans_;
  WatchedUnits watched_;  // last member, because its hooks use the ones above
};

}  // namespace rondo
