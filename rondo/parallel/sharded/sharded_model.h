#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/step_announcement.h"
#include "rondo/parallel/sharded/late_gradients.h"
#include "rondo/parallel/sharded/launch_plan.h"
#include "rondo/parallel/sharded/offload_files.h"
#include "rondo/parallel/sharded/sharded_unit.h"
#include "rondo/parallel/sharded/sharding_plan.h"
#include "rondo/parallel/sharded/unit_watch.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/registry.h"

namespace rondo {

// A model whose units are replicated or sharded, each by its own strategy. Watches the units: gathers a
// unit's parameters before they are used and the next ones' ahead, frees them, and sends its gradients off
// when its backward pass is over.
//
// A step in which nobody looks at gradients (LocalBatch::gradients_are_read) ends without waiting for them
// when the engine works in the background: a unit's gradients are awaited, its part of the optimizer's step
// is done, and its parameters are gathered, before its next forward pass (DeAR).
//
// With the schedule of a plan, and an engine that works in the background, gathers and blocks start at the
// slots that the plan has for them, and all gradients are there before the optimizer, as the planner counts.
class ShardedModel final : public PreparedModel, private ModelParts {
 public:
  // Collective. Throws UsageError for a plan that does not fit the model, MismatchError when ranks have
  // different models.
  ShardedModel(std::shared_ptr<torch::nn::Module> module, const ShardingPlan& plan, Context context,
               const StrategyOptions& options);
  ~ShardedModel() override;

  torch::nn::Module& module() override { return *optimized_; }
  void begin_step(const LocalBatch& batch) override;
  void finish_backward() override;
  double clip_gradients(double max_norm) override;
  void step(torch::optim::Optimizer& optimizer) override;
  ModelParts& parts() override { return *this; }
  CommunicationTimes communication_times() const override { return times_; }
  std::vector<CommunicationSpan> communication_spans() const override { return spans_; }
  at::Tensor cast_input(const at::Tensor& input) const override;
  at::Tensor cast_output(const at::Tensor& output) const override;

 private:
  // ModelParts, in sharded_model_state.cpp.
  void make_whole() override;
  void adopt_values() override;
  void settle() override;
  bool optimizes_parts() const override;
  bool keeps_masters() const override;
  at::Tensor assemble(const std::string& parameter, const at::Tensor& part) override;
  at::Tensor part_of(const std::string& parameter, const at::Tensor& whole) override;
  at::Tensor whole_parameter(const std::string& parameter) override;
  std::int64_t part_offset(const std::string& parameter) const override;
  std::vector<std::int64_t> whole_sizes(const std::string& parameter) override;
  void set_parameter(const std::string& parameter, const at::Tensor& whole) override;
  std::vector<ModelTensor> buffers() override { return tensors_.buffers; }

  // What a backward pass has left of a unit.
  struct Progress {
    int open_calls = 0;     // recorded forward calls whose backward pass is not over
    bool complete = false;  // gradients are all there
    bool launched = false;  // in this pass
    int inside = 0;         // forward calls of its members that have begun and not ended
    bool pending = false;   // gradients are on their way, and the optimizer's step for it is still to be done
  };

  void build(const ShardingPlan& plan, const StrategyOptions& options);
  void verify_same_model(const StrategyOptions& options);
  void make_reshard_group(int ranks, int shard_ranks);
  void prepare_offload(const OffloadOptions& options);

  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  void after_backward(std::size_t unit);

  // Makes the unit's parameters readable, and those of the next units in `direction` on their way.
  void require(std::size_t unit, int direction);
  void prefetch(std::size_t unit, int direction);
  // The computation has come to a slot of the plan: what the plan launches there sets out. Slots of a step
  // only go up; without a plan's schedule nothing happens.
  void reach(int slot);
  BlockOrder planned_order(std::size_t unit, cost::JobKind purpose, int micro_batch) const;
  BlockOrder gather_order(std::size_t unit, int direction) const;
  BlockOrder gradient_order(std::size_t unit) const;
  BlockOrder update_order(std::size_t unit) const;
  // Gradients that have arrived give their buffers back.
  void take_arrived_gradients();
  void launch_complete_units();
  // Whether this pass's gradients of the unit are sent off.
  bool launches(std::size_t unit) const;
  void finish_pass();
  // Frees the joined unit that the forward pass has left, when it has gone on to `unit`.
  void release_left(std::size_t unit);
  void update(std::size_t unit);
  void step_into_files(torch::optim::Optimizer& optimizer);
  bool shards_optimizer_state() const;
  ShardedUnit& unit_with(const std::string& parameter) const;
  void after_update(std::size_t unit);
  std::int64_t forward_priority(std::size_t unit) const;
  void note_position(std::size_t unit);
  void make_room_for_gradients(std::size_t unit);
  void note_missing_gradients(std::size_t unit);
  void agree_on_unused();
  void collect_records();

  std::shared_ptr<torch::nn::Module> original_;
  Context context_;
  ModelTensors tensors_;  // of the original
  StepAnnouncement announcement_;
  UnitEnvironment environment_;
  std::unique_ptr<BlockScheduler> scheduler_;
  BufferPool buffers_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::shared_ptr<UnitWatch> watch_;
  std::vector<UnitState*> watched_;
  std::vector<bool> joins_several_;  // by unit: it is several of the model's (unit_fusion.h)
  std::optional<std::size_t> left_;  // a joined unit of which no member runs, gathered for the next member
  std::shared_ptr<torch::nn::Module> optimized_;
  const bool find_unused_;
  const bool reduce_every_pass_;
  const bool broadcast_buffers_;
  const int prefetch_;
  const int gradients_in_flight_;
  const bool defers_;                    // the engine works in the background
  std::unique_ptr<OffloadFiles> files_;  // null without offload
  bool offloads_optimizer_ = false;

  std::optional<LaunchPlan> launches_;  // of a plan's schedule, where blocks travel
  int slot_ = 0;                        // of the plan
  std::int64_t first_slot_ = 0;         // of the step, counted over all steps
  int pass_ = 0;                        // micro-batch of this step

  std::vector<std::size_t> order_;     // units in order of forward, as far as it is known
  std::vector<std::size_t> position_;  // by unit: its place in order_
  bool order_known_ = false;
  std::vector<Progress> progress_;  // by unit
  std::size_t next_launch_ = 0;     // position from the end of order_
  LocalBatch batch_;
  std::optional<GradientWeight> weight_;  // of this step, once known
  bool in_step_ = false;                  // between begin_step() and finish_backward()
  bool whole_ = false;                    // make_whole() was called
  bool must_meet_ = true;                 // ranks have written parameters that others read without a message
  bool waits_later_ = false;              // this step's gradients are awaited after finish_backward()
  bool buffers_changed_ = true;
  torch::optim::Optimizer* pending_optimizer_ = nullptr;  // of pending units
  torch::optim::Optimizer* checked_optimizer_ = nullptr;
  std::vector<std::string> missing_;  // parameters that this rank has no gradient of in this step
  std::vector<std::string> unused_;   // parameters that no rank has one of
  std::int64_t exposed_ns_ = 0;       // this step
  CommunicationTimes times_;
  std::vector<CommunicationSpan> spans_;
  std::optional<LateGradients> late_gradients_;  // last: its hooks look at what is above
};

}  // namespace rondo
