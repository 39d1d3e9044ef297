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

// One rank's part of a model that several ranks compute together.
struct DividedModel {
  std::map<std::string, Shard> addresses = {};  // positions of divided parameters in the full ones, by name
  bool divided_outputs = false;                 // whether the first output has this rank's classes only
};

// Reduces `module` to this rank's part along the mesh's dimensions "tensor", by the options' rules or the
// module's own, and "context". From then on it computes together with the other ranks. All ranks must have
// the same values. Does not communicate. Throws UsageError like parallelize(), and for a model that does not
// define such a division.
DividedModel divide_model(torch::nn::Module& module, const Context& context, const TensorOptions& options);

// Throws UsageError for invalid rules.
void check(const TensorOptions& options);

// A model with layers divided among the ranks of a group. Another prepared model trains each part on the
// ranks of the other replicas that have the same part, and reduces gradients there. This class maps parts to
// the full model: positions of shards, the norm over all of them, and divided outputs.
class TensorParallelModel final : public PreparedModel, private ModelParts {
 public:
  // `part` must have been prepared from this rank's part of the model, or of one stage of it, along the
  // dimensions "data" and "context" of the context's mesh. Ranks along "tensor" and "context" compute a
  // sample together.
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
  // Counts each parameter once, independent of the number of its parts and copies.
  double clip_combined(double max_norm) override { return clip_shards(shards(), group(), max_norm); }
  void apply_step(torch::optim::Optimizer& optimizer) override { part_->step(optimizer); }

  // ModelParts. After unshard() this rank's part is complete.
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
  std::optional<StepAnnouncement> stops_;  // for all ranks; empty if part_ already announces to all ranks
  bool step_begins_ = true;                // whether the next begin_step() is the first of a step
  Duration communication_ = {};            // time of communication between parts in the last step
};

}  // namespace rondo
