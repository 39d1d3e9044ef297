#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/parallel/local_sgd/parameter_average.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// A replica that takes local steps and is averaged with the others once per period.
//
// For evaluation and saving the model is the mean of the ranks' replicas. parts().flush() stores the mean in
// the module, and the next begin_step() restores this rank's own values. totals() are of this rank alone,
// except in steps in which ranks communicate: the synchronous ones, and those that end a period. A request to
// stop takes effect in those steps.
class LocalSgdModel final : public PreparedModel {
 public:
  // Copies rank 0's values to all ranks. Throws MismatchError if models or options differ. Collective.
  LocalSgdModel(std::shared_ptr<torch::nn::Module> module, const Group& group,
                const LocalSgdOptions& options);

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }
  void announce(const StepTotals& mine) override;
  StepTotals totals() override;
  // Returns every rank's own values, the number of steps, the outer optimizer's state, and averages in
  // flight.
  CommunicationState communication_state() const override;
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override;
  CommunicationTimes communication_times() const override;
  std::vector<TraceSpan> communication_spans() const override { return average_.spans(); }

 private:
  void start_pass(const LocalBatch& batch) override;
  void finish_pass() override;
  void apply_step(torch::optim::Optimizer& optimizer) override;

  class Parts final : public UndividedModel {
   public:
    explicit Parts(LocalSgdModel& model) : UndividedModel(*model.module_), model_(model) {}
    void flush_for(ForwardPasses) override { model_.show_mean(); }
    // Shown values need no reload: this rank's own values are in own_ since flush(), and begin_step()
    // restores them.
    void take_values(NewValues values) override {
      if (values != NewValues::shown_shards) model_.reload();
    }

   private:
    LocalSgdModel& model_;
  };

  // Returns true if the current step averages gradients.
  bool synchronous() const { return steps_ < options_.synchronous_steps; }
  // Returns true if ranks communicate in the current step; depends on its number only.
  bool ranks_meet() const {
    return synchronous() || average_.ends_period(steps_ + 1 - options_.synchronous_steps);
  }
  void combine_gradients();
  // Does the work between the optimizer's step and the next forward pass, once per step.
  void finish_step();
  void show_mean();
  void reload();

  std::shared_ptr<torch::nn::Module> module_;
  Group group_;
  LocalSgdOptions options_;
  ModelTensors tensors_;
  Parts parts_{*this};
  ParameterAverage average_;
  StepAnnouncement announcement_;  // for steps in which ranks communicate
  LocalBatch batch_;
  StepTotals mine_;
  StepTotals totals_;
  std::int64_t steps_ = 0;       // number of steps done, including the synchronous ones
  bool step_is_open_ = false;    // whether finish_step() has work to do
  std::vector<at::Tensor> own_;  // this rank's values while the module has the mean
  bool restored_ = false;        // whether restore_communication() has restored the averages' state
};

// Strategy "local_sgd": every rank trains its own replica, and the replicas are averaged once per period.
// Options also select post-local SGD and DiLoCo.
class LocalSgdStrategy final : public ProcessStrategy {
 public:
  // Throws UsageError if the delay is not shorter than the period, or if there are more fragments than steps
  // in a period.
  LocalSgdStrategy(Context context, const LocalSgdOptions& options);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  // Throws UsageError: averages of low-precision parameters would not reach their master weights.
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override;

 private:
  LocalSgdOptions options_;
};

}  // namespace rondo
