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

// One rank's part of a pipelined model: the parameters of its stages. Parameters of other stages have no
// elements here. Another strategy's PreparedModel trains the replicas of a stage. It does not see stages: it
// gets the sums of all micro-batches' gradients, in a separate backward pass.
class PipelineModel final : public PreparedModel, private ModelParts {
 public:
  // `owners[i]`: the ranks along the pipeline that own entry i of tensors_of(module), parameters before
  // buffers. The module's values are the same on all ranks, its part along "tensor" on each. `replicas`
  // prepares the trained parameters, and spreads experts. Collective.
  PipelineModel(std::shared_ptr<torch::nn::Module> module, Context context, Strategy& replicas,
                std::vector<std::vector<int>> owners);

  torch::nn::Module& module() override { return inner_->module(); }
  void announce(const StepTotals& mine) override;
  // Returns the totals over all replicas and their stages.
  StepTotals totals() override;
  ModelParts& parts() override { return *this; }
  CommunicationState communication_state() const override { return inner_->communication_state(); }
  CommunicationTimes communication_times() const override;
  std::vector<TraceSpan> communication_spans() const override;
  // Sets the time that this rank waited for other stages in the last step, in nanoseconds, and the spans of
  // the waits.
  void set_waits(std::int64_t ns, std::vector<TraceSpan> spans) {
    waited_ = std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(ns));
    waits_ = std::move(spans);
  }

 private:
  struct Parameter {
    std::string name;
    at::Tensor model = {};  // tensor that forward uses; without elements if another stage owns the parameter
    at::Tensor trained = {};               // tensor given to the inner model, in the same memory
    std::vector<std::int64_t> sizes = {};  // of the parameter with the experts of all ranks
    std::vector<int> owners = {};          // ranks along the pipeline
    bool own = false;
    Group shared = {};  // group of its owners, if there are several
  };

  void start_pass(const LocalBatch& batch) override;
  // Takes the gradients of the stages, sums those of shared parameters, and reduces them over replicas.
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

  // Makes forward use the memory that the inner model trains.
  void follow();
  // Copies all buffers from the stages that own them, of the first replica, to every rank.
  void share_buffers();

  std::shared_ptr<torch::nn::Module> original_;
  Context context_;
  const Group pipeline_;
  ModelTensors tensors_;
  std::vector<std::vector<int>> buffer_owners_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<PreparedModel> inner_;
  StepAnnouncement announcement_;  // of all ranks; inner_ announces the weights of gradients among replicas
  Duration waited_{};
  std::vector<TraceSpan> waits_;
};

}  // namespace rondo
