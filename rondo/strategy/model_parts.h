#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/norm_sum.h"
#include "rondo/nn/shard.h"

namespace rondo {

// Between what a rank's optimizer changes of a prepared model, PreparedModel::module(), and the whole model.
// Parameters are known by name. All ranks make the same calls; one thread uses an object.
class ModelParts {
 public:
  virtual ~ModelParts() = default;

  // Afterwards this rank's model has, until the next begin_step(), all parameters as the last step left them:
  // it may compute without the other ranks. Collective.
  virtual void unshard() = 0;
  // After a change of the model's values from outside, the same on all ranks (a checkpoint was loaded):
  // training goes on with these. Collective.
  virtual void reload_shards() = 0;
  // What is left of the last step on this rank, which some strategies do later, is done. Afterwards, until
  // the next begin_step(), all ranks may make forward passes together, each as many: what a unit lacks is
  // gathered in them. Collective.
  virtual void flush() = 0;

  // Whether module() has shards or copies of the model's parameters instead of the parameters themselves.
  virtual bool optimizes_shards() const = 0;
  // With optimizes_shards(): what makes norms of full parameters of those of the shards that module() has,
  // for optimizers that look at them. Empty where the strategy cannot: they are refused.
  virtual NormSum norm_sum() { return {}; }
  // Whether the model itself computes with roundings of what module() has.
  virtual bool has_fp32_master_weights() const = 0;
  // Whether the model computes with the memory of what module() has, so that a training may keep master
  // weights of that and write them back behind PreparedModel::step().
  virtual bool computes_with_optimized() const { return !optimizes_shards(); }

  // What this rank's optimizer changes of each parameter, in the model's order: `local` is the tensor that
  // module() has. Ranks may have empty shards of a parameter, or none. Current after flush().
  virtual std::vector<Shard> shards() = 0;
  // Full parameters that are here besides, with the values that the optimizers have: what need not be sent.
  // After flush().
  virtual std::vector<Shard> full_copies() { return {}; }
  // After a change of the shards' values from outside, on all ranks: training goes on with these. Collective,
  // moves nothing yet.
  virtual void publish_shards() { reload_shards(); }
  // The shards' values were exchanged for a while, on all ranks, and come back before the next step: what
  // training remembers besides them stays as it is. Collective, moves nothing yet.
  virtual void show_shards() { publish_shards(); }
  // Whether shards() and full_copies() may lie in memory of other ranks, and go when those go.
  virtual bool shares_memory() const { return false; }
  // Whether shards() are as the last step left them without flush(): it waits for no other rank.
  virtual bool is_flushed() const { return true; }
  // The model gets memory of its own again, of unspecified values and in the shards' dtypes, to be prepared
  // once more; this object may only be destroyed then. Communicates nothing.
  virtual void give_back_model() {}
  // The model's buffers, which every rank has in full.
  virtual std::vector<ModelTensor> buffers() = 0;
  // The ranks among which the model is spread; an empty handle is this process alone.
  virtual const Group& group() const { return alone_; }

 private:
  const Group alone_ = {};
};

// Of a model that every rank has as a whole.
class UndividedModel : public ModelParts {
 public:
  // `module` outlives the object. The ranks of `group` have copies of it.
  explicit UndividedModel(torch::nn::Module& module, Group group = {})
      : module_(module), group_(std::move(group)) {}

  void unshard() override {}
  void reload_shards() override {}
  void flush() override {}
  bool optimizes_shards() const override { return false; }
  bool has_fp32_master_weights() const override { return false; }
  std::vector<Shard> shards() override;
  void give_back_model() override;
  std::vector<ModelTensor> buffers() override;
  const Group& group() const override { return group_; }

 private:
  torch::nn::Module& module_;
  Group group_;
};

}  // namespace rondo
