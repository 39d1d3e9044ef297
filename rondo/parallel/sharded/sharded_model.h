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
#include "rondo/parallel/sharded/block_schedule.h"
#include "rondo/parallel/sharded/forbidden_access.h"
#include "rondo/parallel/sharded/gradient_scale.h"
#include "rondo/parallel/sharded/shard_optimizer.h"
#include "rondo/parallel/sharded/sharded_setup.h"
#include "rondo/parallel/sharded/unit_plans.h"
#include "rondo/parallel/sharded/unit_reducer.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/step_calls.h"

namespace rondo {

// Passes on what happens to a model's units, by number.
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

// Units that are watched and cast their inputs and outputs, as long as the object lives.
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

// A model whose units are replicated or sharded, each by its own strategy. Watches the units: gathers a
// unit's parameters before they are used and the next ones' ahead, frees them, and sends its gradients off
// when its backward pass is over.
//
// A step in which nobody looks at gradients (LocalBatch::gradients_are_read) ends without waiting for them
// when the engine works in the background: a unit's gradients are awaited, its part of the optimizer's step
// is done, and its parameters are gathered, before its next forward pass (DeAR). Where that may come after
// gradients of the next step, or not at all, every unit's part is done when that step begins.
//
// With the schedule of a plan, and an engine that works in the background, gathers and blocks start at the
// slots that the plan has for them, and all gradients are there before the optimizer, as the planner counts.
class ShardedModel final : public PreparedModel, private ModelParts {
 public:
  // Collective. Throws UsageError for a plan that does not fit the model, MismatchError when ranks have
  // different models.
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
    int inside = 0;        // forward calls of its members that have begun and not ended
    bool pending = false;  // gradients are on their way, and the optimizer's step for it is still to be done
    bool partial = false;  // the backward pass that is inside it computes gradients of chosen tensors only
    // A backward pass was recorded in it, so that another one may come at any time of this pass.
    bool recorded_backward = false;
  };

  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  void after_backward(std::size_t unit);
  // Which kind of backward pass enters the unit.
  void note_backward(std::size_t unit);
  // Waits until no rank writes to parameters that others read without a message.
  void await_writers();

  // Makes the unit's parameters readable, and those of the next units in `direction` on their way.
  void require(std::size_t unit, int direction);
  void prefetch(std::size_t unit, int direction);
  // Frees the joined unit that the forward pass has left, when it has gone on to `unit`.
  void release_left(std::size_t unit);
  // The optimizer's step of one unit, whose gradients it waits for.
  void update(std::size_t unit);
  void after_update(std::size_t unit);
  // The same of all units for which it is still to be done.
  void finish_updates();
  // Waits for the gradients of all units and gives them to the optimizer.
  void install_gradients();
  // The same where they are awaited later, for a caller that looks at them now.
  void install_gradients_now();
  // Throw UsageError. The first for an optimizer that has changed shards without step(), the second for a
  // parameter that was frozen in the constructor, the third for changes that would be lost.
  void refuse_foreign_step() const;
  void refuse_thawed() const;
  void refuse_lost_changes() const;
  // Throws UsageError for a forward or backward pass outside of a step, of a unit that is not whole here.
  void require_whole(std::size_t unit, const char* pass) const;
  // This rank's word to the others about the step.
  RankStep own_step() const { return {.samples = batch_.samples, .steps = steps_, .scale = last_scale_}; }
  std::uint64_t optimized_fingerprint() const;
  std::uint64_t full_fingerprint() const;
  // Buffers become rank 0's, if a step has changed them.
  void share_buffers();
  bool shards_optimizer_state() const { return optimizer_.shards_state(); }
  std::int64_t forward_priority(std::size_t unit) const {
    return static_cast<std::int64_t>(order_.position(unit));
  }
  void collect_spans();
  // What the codec of gradients remembers, by name: the tensors themselves.
  std::map<std::string, at::Tensor> gradient_memory() const;

  std::shared_ptr<torch::nn::Module> original_;
  Context context_;
  ModelTensors tensors_;  // of the original, without what is ignored
  StepAnnouncement announcement_;
  ShardedSetup setup_;
  const UnitEnvironment& environment_ = setup_.environment;
  const ShardedUnits& units_ = setup_.units;
  std::int64_t exposed_ns_ = 0;  // this step
  UnitOrder order_;
  BlockSchedule schedule_;
  UnitReducer reducer_;
  ShardOptimizer optimizer_;
  ForbiddenGradients forbidden_;
  const std::vector<ModelTensor> frozen_;  // the model's own, and what the optimizer may have of them
  std::shared_ptr<DriftCheck> drift_;      // only where every rank's optimizer changes the whole model
  const bool may_leave_units_out_;         // a step need not use all parameters
  const bool broadcast_buffers_;
  const int prefetch_;

  std::vector<Progress> progress_;   // by unit
  std::optional<std::size_t> left_;  // a joined unit of which no member runs, gathered for the next member
  LocalBatch batch_;
  StepCalls calls_;
  std::int64_t steps_ = 0;  // whose gradients step() was given
  GradientScale scale_;
  std::optional<double> last_scale_;                    // of the last step's gradients
  bool announced_ = false;                              // since begin_step()
  bool has_totals_ = false;                             // of the last step that has any
  std::optional<std::uint64_t> optimized_fingerprint_;  // when gradients were combined; empty: nobody knows
  std::optional<std::uint64_t> full_fingerprint_;  // by unshard() or reload_shards(); empty: nobody knows
  bool together_ = false;                          // flush() was called: ranks make forward passes together
  bool whole_ = false;                             // unshard() was called
  bool needs_barrier_ = true;  // ranks have written parameters that others read without a message
  bool waits_later_ = false;   // this step's gradients are awaited after finish_backward()
  bool buffers_changed_ = true;
  torch::optim::Optimizer* pending_optimizer_ = nullptr;  // of pending units
  CommunicationTimes times_;
  std::vector<TraceSpan> spans_;
  WatchedUnits watched_;  // last: its hooks look at what is above
};

}  // namespace rondo
