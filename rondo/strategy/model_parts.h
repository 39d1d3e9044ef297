#pragma once

#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/norm_sum.h"
#include "rondo/nn/shard.h"

namespace rondo {

// Coordination of forward passes outside of steps.
enum class ForwardPasses {
  together,  // all ranks make the same number of passes: units may be gathered in them
  alone      // each rank runs its own number of passes: all parameters are local
};

// Kind of values that were written into a prepared model outside of steps.
enum class NewValues {
  model,        // the model's own parameters and buffers
  shards,       // the tensors of ModelParts::shards()
  shown_shards  // as shards, temporarily: the old values return before the next step
};

// Properties of ModelParts. The defaults describe a model that every rank optimises as a whole.
struct PartsTraits {
  // Whether module() has shards or copies instead of the model's own parameters.
  bool optimizes_shards = false;
  // Whether the model computes with rounded values of module()'s parameters.
  bool fp32_master_weights = false;
  // Whether the model computes in the memory of module()'s parameters. A training may then keep master
  // weights of them and write these back after PreparedModel::step().
  bool computes_with_optimized = true;
  // Whether shards() and full_copies() may be in memory of other ranks; they become invalid when these exit.
  bool shares_memory = false;
  // Whether shards() are current without flush(), which then waits for no rank.
  bool is_flushed = true;
  // Whether an optimizer on this rank may read the whole model and evaluate it any number of times.
  bool optimizes_whole_model = false;
};

// A map from the shards that a rank's optimizer updates, PreparedModel::module(), to the full model.
// Parameters are identified by name. All ranks make the same calls; an object is used by one thread.
class ModelParts {
 public:
  // The ranks of `group` hold the model together; an empty handle is this process alone.
  explicit ModelParts(Group group = {}) : group_(std::move(group)) {}
  virtual ~ModelParts() = default;
  ModelParts(const ModelParts&) = delete;
  ModelParts& operator=(const ModelParts&) = delete;

  // Completes the deferred part of the last step on this rank, and prepares the model for `passes` until the
  // next begin_step(). Collective.
  virtual void flush_for(ForwardPasses passes) = 0;
  void flush() { flush_for(ForwardPasses::together); }  // likewise
  // Makes all parameters of this rank's model whole and current after the last step. Collective.
  void unshard() { flush_for(ForwardPasses::alone); }

  // Continues with `values`, which were written on all ranks. Collective; for shards it defers communication.
  virtual void take_values(NewValues values) = 0;
  // Continues with values that are the same on all ranks, such as a loaded checkpoint.
  void reload_shards() { take_values(NewValues::model); }
  void publish_shards() { take_values(NewValues::shards); }     // publishes each rank's own shards
  void show_shards() { take_values(NewValues::shown_shards); }  // likewise, temporarily

  // Returns the present properties of the model.
  virtual PartsTraits traits() const { return {}; }
  bool optimizes_shards() const { return traits().optimizes_shards; }                // see PartsTraits
  bool has_fp32_master_weights() const { return traits().fp32_master_weights; }      // likewise
  bool computes_with_optimized() const { return traits().computes_with_optimized; }  // likewise
  bool shares_memory() const { return traits().shares_memory; }                      // likewise
  bool is_flushed() const { return traits().is_flushed; }                            // likewise

  // Returns a function that converts norms of module()'s shards to norms of full parameters, for optimizers
  // that read them; used with optimizes_shards(). Empty if the strategy does not support such optimizers:
  // they are rejected.
  virtual NormSum norm_sum() { return {}; }
  // Returns the shard of each parameter that this rank's optimizer updates, in the model's order; `local` is
  // module()'s tensor. Ranks may have an empty shard of a parameter, or none. Current after flush().
  virtual std::vector<Shard> shards() = 0;
  // Returns additional full parameters on this rank, with the optimizers' current values; they need not be
  // communicated. Current after flush().
  virtual std::vector<Shard> full_copies() { return {}; }
  // Returns the model's buffers; every rank has all of them.
  virtual std::vector<ModelTensor> buffers() = 0;
  // Allocates memory for the model, with unspecified values and the shards' dtypes, so that it can be
  // prepared again; afterwards this object may only be destroyed. Does not communicate.
  virtual void give_back_model() {}
  const Group& group() const { return group_; }  // ranks that hold the model together

 private:
  const Group group_;
};

// Parts of a model that every rank has as a whole.
class UndividedModel : public ModelParts {
 public:
  // `module` must outlive the object. The ranks of `group` have copies of it.
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
