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

// A replica that takes steps of its own, averaged with the others' once in a period.
//
// What it is as a whole, for evaluation and saving, is the mean of the ranks' replicas: parts().flush() puts
// the mean into the module, and the next begin_step() this rank's own values. totals() are of this rank alone
// but in steps in which ranks meet: the synchronous ones, and those that end a period. There a request to
// stop is heard.
class LocalSgdModel final : public PreparedModel {
 public:
  // Collective. All ranks get the values of rank 0. Throws MismatchError where models or options differ.
  LocalSgdModel(std::shared_ptr<torch::nn::Module> module, const Group& group,
                const LocalSgdOptions& options);

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }
  void announce(const StepTotals& mine) override;
  StepTotals totals() override;
  // With every rank's own values, the number of steps, what the outer optimizer remembers, and averages that
  // are under way.
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
    // Of shown values, this rank's own are aside since flush(), and begin_step() puts them back.
    void take_values(NewValues values) override {
      if (values != NewValues::shown_shards) model_.reload();
    }

   private:
    LocalSgdModel& model_;
  };

  bool synchronous() const { return steps_ < options_.synchronous_steps; }  // the step that is under way
  // In the step that is under way; a function of its number.
  bool ranks_meet() const {
    return synchronous() || average_.ends_period(steps_ + 1 - options_.synchronous_steps);
  }
  void combine_gradients();
  // What is to happen between the optimizer's step and the next forward pass, once.
  void finish_step();
  void show_mean();
  void reload();

  std::shared_ptr<torch::nn::Module> module_;
  Group group_;
  LocalSgdOptions options_;
  ModelTensors tensors_;
  Parts parts_{*this};
  ParameterAverage average_;
  StepAnnouncement announcement_;  // of steps in which ranks meet
  LocalBatch batch_;
  StepTotals mine_;
  StepTotals totals_;
  std::int64_t steps_ = 0;       // done, the synchronous ones among them
  bool step_is_open_ = false;    // finish_step() has something to do
  std::vector<at::Tensor> own_;  // this rank's values while the module has the mean
  bool restored_ = false;        // what averages remember came with restore_communication()
};

// Strategy "local_sgd": every rank trains a replica of its own, and once in a period they are averaged. With
// options also post-local SGD and DiLoCo.
class LocalSgdStrategy final : public ProcessStrategy {
 public:
  // Throws UsageError for a delay that is not shorter than the period, or more fragments than its steps.
  LocalSgdStrategy(Context context, const LocalSgdOptions& options);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  // Throws UsageError: averages of low-precision parameters would not reach their master weights.
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override;

 private:
  LocalSgdOptions options_;
};

}  // namespace rondo
