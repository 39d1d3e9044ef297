#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/strategy/clip_shards.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// What one rank of a pipeline has of a model: the parameters of its stages; those of others have no elements
// here. Replicas of a stage are the business of another strategy's PreparedModel, which knows nothing of
// stages: it is given the sums of all micro-batches' gradients, in a backward pass of its own.
class PipelineModel final : public PreparedModel, private ModelParts {
 public:
  // `owners[i]`: the ranks along the pipeline that have the i-th of tensors_of(module): parameters, then
  // buffers. The module's values are the same on all ranks, its part along "tensor" on each. `replicas`
  // prepares what is trained, and spreads experts. Collective.
  PipelineModel(std::shared_ptr<torch::nn::Module> module, Context context, Strategy& replicas,
                std::vector<std::vector<int>> owners);

  torch::nn::Module& module() override { return inner_->module(); }
  void announce(const StepTotals& mine) override;
  // Of all replicas, and of the stages of each.
  StepTotals totals() override;
  ModelParts& parts() override { return *this; }
  CommunicationState communication_state() const override { return inner_->communication_state(); }
  CommunicationTimes communication_times() const override;
  std::vector<TraceSpan> communication_spans() const override;
  // Of the last step: for so long this rank waited for other stages, and when.
  void set_waits(std::int64_t ns, std::vector<TraceSpan> spans) {
    waited_ = std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(ns));
    waits_ = std::move(spans);
  }

 private:
  struct Parameter {
    std::string name;
    at::Tensor model = {};                 // that forward uses; without elements where another stage has it
    at::Tensor trained = {};               // what the inner model was given in its place, of the same memory
    std::vector<std::int64_t> sizes = {};  // on all ranks that divide it by experts together
    std::vector<int> owners = {};          // ranks along the pipeline
    bool own = false;
    Group shared = {};  // among its owners, where there are several
  };

  void start_pass(const LocalBatch& batch) override;
  // Takes the gradients of the stages, adds up what several have, and has replicas combined.
  void finish_pass() override;
  double clip_combined(double max_norm) override { return clip_shards(shards(), group(), max_norm); }
  void apply_step(torch::optim::Optimizer& optimizer) override { inner_->step(optimizer); }

  void flush_for(ForwardPasses passes) override;
  void take_values(NewValues values) override;
  PartsTraits traits() const override;
  NormSum norm_sum() override;
  std::vector<Shard> shards() override;
  std::vector<Shard> full_copies() override;
  std::vector<ModelTensor> buffers() override { return tensors_.buffers; }

  // Forward uses the memory that the inner model trains.
  void follow();
  // Every rank gets all buffers from the stages that have them, of the first replica.
  void share_buffers();

  std::shared_ptr<torch::nn::Module> original_;
  Context context_;
  const Group pipeline_;
  ModelTensors tensors_;
  std::vector<std::vector<int>> buffer_owners_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<PreparedModel> inner_;
  StepAnnouncement announcement_;  // of all ranks; inner_ weights gradients, by what replicas of a stage tell
  Duration waited_{};
  std::vector<TraceSpan> waits_;
};

}  // namespace rondo
