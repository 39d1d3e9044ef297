#pragma once

#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/norm_sum.h"
#include "rondo/nn/shard.h"

namespace rondo {

// How ranks make forward passes outside of a step.
enum class ForwardPasses {
  together,  // all ranks make as many: units may be gathered in them
  alone      // each rank by itself: all parameters are here
};

// Values that were written into a prepared model from outside of its steps.
enum class NewValues {
  model,        // the model's own parameters and buffers
  shards,       // the tensors of ModelParts::shards()
  shown_shards  // the same for a while: the old values come back before the next step
};

// Facts about the parts of a model. The defaults are those of a model that every rank optimises as a whole.
struct PartsTraits {
  bool optimizes_shards = false;     // module() has shards or copies in place of the model's own parameters
  bool fp32_master_weights = false;  // the model computes with roundings of what module() has
  // The model computes with the memory of what module() has, so that a training may keep master weights of
  // that and write them back behind PreparedModel::step().
  bool computes_with_optimized = true;
  bool shares_memory =
      false;               // shards() and full_copies() may lie in memory of other ranks, and go with these
  bool is_flushed = true;  // shards() are as the last step left them without flush(); waits for no rank
  // An optimizer on this rank may look at the whole model and evaluate it as often as it likes.
  bool optimizes_whole_model = false;
};

// Maps the shards that a rank's optimizer updates, PreparedModel::module(), to the full model. Parameters are
// known by name. All ranks make the same calls; one thread uses an object.
class ModelParts {
 public:
  // The ranks of `group` have the model together; an empty handle is this process alone.
  explicit ModelParts(Group group = {}) : group_(std::move(group)) {}
  virtual ~ModelParts() = default;
  ModelParts(const ModelParts&) = delete;
  ModelParts& operator=(const ModelParts&) = delete;

  // Completes on this rank what is left of the last step, and readies the model for `passes`, until the next
  // begin_step(). Collective.
  virtual void flush_for(ForwardPasses passes) = 0;
  void flush() { flush_for(ForwardPasses::together); }  // likewise
  // Afterwards this rank's model has all parameters as the last step left them. Collective.
  void unshard() { flush_for(ForwardPasses::alone); }

  // Goes on with `values`, which were written from outside on all ranks. Collective; for shards it moves
  // nothing yet.
  virtual void take_values(NewValues values) = 0;
  void reload_shards() { take_values(NewValues::model); }       // the same on all ranks: a loaded checkpoint
  void publish_shards() { take_values(NewValues::shards); }     // each rank's own
  void show_shards() { take_values(NewValues::shown_shards); }  // likewise, for a while

  virtual PartsTraits traits() const { return {}; }                              // of the model as it is now
  bool optimizes_shards() const { return traits().optimizes_shards; }            // see PartsTraits
  bool has_fp32_master_weights() const { return traits().fp32_master_weights; }  // likewise
  bool computes_with_optimized() const { return traits().computes_with_optimized; }  // likewise
  bool shares_memory() const { return traits().shares_memory; }                      // likewise
  bool is_flushed() const { return traits().is_flushed; }                            // likewise

  // Returns, with optimizes_shards(), a function that makes norms of full parameters of those of the shards
  // that module() has, for optimizers that look at them. Empty where the strategy cannot: they are refused.
  virtual NormSum norm_sum() { return {}; }
  // Returns what this rank's optimizer changes of each parameter, in the model's order: `local` is the tensor
  // that module() has. Ranks may have empty shards of a parameter, or none. Current after flush().
  virtual std::vector<Shard> shards() = 0;
  // Returns full parameters that are here besides, with the values that the optimizers have: they need not be
  // sent. After flush().
  virtual std::vector<Shard> full_copies() { return {}; }
  // Returns the model's buffers, which every rank has in full.
  virtual std::vector<ModelTensor> buffers() = 0;
  // Gives the model memory of its own again, of unspecified values and in the shards' dtypes, to be prepared
  // once more; this object may only be destroyed then. Communicates nothing.
  virtual void give_back_model() {}
  const Group& group() const { return group_; }  // the ranks that have the model together

 private:
  const Group group_;
};

// The parts of a model that every rank has as a whole.
class UndividedModel : public ModelParts {
 public:
  // `module` outlives the object. The ranks of `group` have copies of it.
  explicit UndividedModel(torch::nn::Module& module, Group group = {}, PartsTraits traits = {})
      : ModelParts(std::move(group)), module_(module), traits_(traits) {}

  void flush_for(ForwardPasses) override {}
  void take_values(NewValues) override {}
  PartsTraits traits() const override { return traits_; }
  std::vector<Shard> shards() override;
  std::vector<ModelTensor> buffers() override;
  void give_back_model() override;

 private:
  torch::nn::Module& module_;
  const PartsTraits traits_;
};

}  // namespace rondo
