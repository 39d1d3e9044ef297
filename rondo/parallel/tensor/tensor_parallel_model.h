#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/tensor/divided_model.h"
#include "rondo/strategy/clip_shards.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// A model of which every rank of a group has its part of the layers, and whose parts another prepared model
// trains on those ranks of the other replicas that have the same: gradients are combined there. What is here
// is between the parts and the whole: addresses of shards, the norm over all of them, outputs of which a rank
// has some.
class TensorParallelModel final : public PreparedModel, private ModelParts {
 public:
  // `part` was made of this rank's part of the model, along dimensions "data" and "context" of the context's
  // mesh, whose dimensions "tensor" and "context" compute a sample together, or of one stage of it.
  TensorParallelModel(std::unique_ptr<PreparedModel> part, DividedModel divided, Context context);

  torch::nn::Module& module() override { return part_->module(); }
  void begin_step(const LocalBatch& batch) override;
  void announce(const StepTotals& mine) override;
  StepTotals totals() override;
  void finish_backward() override;
  // Each parameter counts once, wherever its parts and copies are.
  double clip_gradients(double max_norm) override { return clip_shards(shards(), group(), max_norm); }
  void step(torch::optim::Optimizer& optimizer) override { part_->step(optimizer); }
  ModelParts& parts() override { return *this; }
  // Its pieces of the sequences.
  Batch own_part(const Batch& batch) const override;
  int ranks_of_sequence() const override;
  LossFunction loss_of_parts(LossFunction loss) const override;
  std::vector<at::Tensor> whole_outputs(std::vector<at::Tensor> outputs) const override;
  CommunicationState communication_state() const override { return part_->communication_state(); }
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override;
  at::Tensor cast_input(const at::Tensor& input) const override { return part_->cast_input(input); }
  at::Tensor cast_output(const at::Tensor& output) const override { return part_->cast_output(output); }
  CommunicationTimes communication_times() const override;
  std::vector<TraceSpan> communication_spans() const override { return part_->communication_spans(); }

 private:
  // ModelParts. What is whole after unshard() is this rank's part.
  void unshard() override { part_->parts().unshard(); }
  void reload_shards() override { part_->parts().reload_shards(); }
  void flush() override { part_->parts().flush(); }
  bool optimizes_shards() const override { return true; }
  NormSum norm_sum() override;
  bool has_fp32_master_weights() const override { return part_->parts().has_fp32_master_weights(); }
  bool computes_with_optimized() const override { return part_->parts().computes_with_optimized(); }
  std::vector<Shard> shards() override { return in_full_model(part_->parts().shards()); }
  std::vector<Shard> full_copies() override { return in_full_model(part_->parts().full_copies()); }
  void publish_shards() override { part_->parts().publish_shards(); }
  bool shares_memory() const override { return part_->parts().shares_memory(); }
  bool is_flushed() const override { return part_->parts().is_flushed(); }
  void give_back_model() override { part_->parts().give_back_model(); }
  std::vector<ModelTensor> buffers() override { return part_->parts().buffers(); }
  const Group& group() const override { return context_.world(); }

  std::vector<Shard> in_full_model(std::vector<Shard> of_part) const;

  std::unique_ptr<PreparedModel> part_;
  DividedModel divided_;
  Context context_;
  Group tensor_;
  Group sequence_;  // ranks that divide the sequence
  bool divided_outputs_;
  std::optional<StepAnnouncement> stops_;  // of all ranks; empty where part_ hears those of all
  bool step_begins_ = true;                // the next begin_step() is a step's first
  Duration communication_ = {};            // between parts, in the last step
};

}  // namespace rondo
