#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/nn/shard.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/tensor/tensor_options.h"
#include "rondo/strategy/clip_shards.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// The part of a model that one of the ranks has that compute a sample together.
struct DividedModel {
  std::map<std::string, Shard> addresses = {};  // of the divided parameters, by name, in the full ones
  bool divided_outputs = false;                 // the first output has this rank's classes only
};

// Leaves this rank its part of `module` along the dimensions "tensor", by the options' rules or the module's
// own, and "context" of the mesh: it computes with that and the other ranks' from now on. All ranks have the
// same values. Communicates nothing. Throws UsageError as parallelize() does, and for a model that says
// nothing of such a division.
DividedModel divide_model(torch::nn::Module& module, const Context& context, const TensorOptions& options);

// Throws UsageError for rules that are none.
void check(const TensorOptions& options);

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
  void announce(const StepTotals& mine) override;
  StepTotals totals() override;
  ModelParts& parts() override { return *this; }
  CommunicationState communication_state() const override { return part_->communication_state(); }
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override;
  CommunicationTimes communication_times() const override;
  std::vector<TraceSpan> communication_spans() const override { return part_->communication_spans(); }

 private:
  void start_pass(const LocalBatch& batch) override;
  void finish_pass() override;
  // Each parameter counts once, wherever its parts and copies are.
  double clip_combined(double max_norm) override { return clip_shards(shards(), group(), max_norm); }
  void apply_step(torch::optim::Optimizer& optimizer) override { part_->step(optimizer); }

  // ModelParts. After unshard() this rank's part is whole.
  void flush_for(ForwardPasses passes) override { part_->parts().flush_for(passes); }
  void take_values(NewValues values) override { part_->parts().take_values(values); }
  PartsTraits traits() const override;
  NormSum norm_sum() override;
  std::vector<Shard> shards() override { return in_full_model(part_->parts().shards()); }
  std::vector<Shard> full_copies() override { return in_full_model(part_->parts().full_copies()); }
  void give_back_model() override { part_->parts().give_back_model(); }
  std::vector<ModelTensor> buffers() override { return part_->parts().buffers(); }

  std::vector<Shard> in_full_model(std::vector<Shard> of_part) const;

  std::unique_ptr<PreparedModel> part_;
  DividedModel divided_;
  Context context_;
  Group tensor_;
  Group sequence_;                         // ranks that divide the sequence
  std::optional<StepAnnouncement> stops_;  // of all ranks; empty where part_ hears those of all
  bool step_begins_ = true;                // the next begin_step() is a step's first
  Duration communication_ = {};            // between parts, in the last step
};

}  // namespace rondo
