#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/precision/options.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/summon_full_params.h"

namespace rondo {

// How fully_shard() spreads a model. The same on all ranks.
struct FullyShardOptions {
  // Stage of ZeRO: 1 shards the optimizer's state (strategy zero1), 2 gradients too, 3 parameters too.
  int zero_stage = 3;
  // Number of neighbouring ranks that share one copy of the model, with copies between such groups (HSDP). 0
  // is all ranks. Stage 3.
  int shard_ranks = 0;
  // Whether parameters are freed between forward and backward; or among how many neighbouring ranks they stay
  // sharded meanwhile. Stage 3.
  std::variant<bool, int> reshard_after_forward = true;
  MixedPrecisionPolicy mixed_precision = {};  // what units compute and communicate in
  OffloadOptions offload = {};                // what lives in memory-mapped files
  std::string codec = "none";                 // how float32 gradients travel (ShardedOptions::codec)
  bool find_unused_parameters = false;        // some parameters get no gradient in some steps
  bool broadcast_buffers = true;              // buffers follow rank 0's before each forward pass
  // Names of parameters and buffers that each rank keeps whole for itself (ShardedOptions::ignored).
  std::vector<std::string> ignored = {};
};

// A model whose parameters, gradients and optimizer state are sharded over ranks, in a loop of one's own:
//
//   auto fsdp = rondo::fully_shard(model, context);
//   torch::optim::AdamW optimizer(fsdp.parameters(), 1e-3);  // after fully_shard()
//   for (auto& batch : *loader) {
//     optimizer.zero_grad();
//     auto loss = loss_function(fsdp.forward(model, batch.data), batch.target);
//     loss.backward();
//     fsdp.step(optimizer);                                  // not optimizer.step()
//   }
//
// The gradient is the mean over all samples of all ranks where they say how many these are
// (set_local_samples()), and over the ranks otherwise. Ranks make the same calls in the same order; one
// thread uses an object. A call that is missing is a UsageError that names it.
class FullyShardedModel {
 public:
  // What fully_shard() makes.
  explicit FullyShardedModel(std::unique_ptr<PreparedModel> prepared) : prepared_(std::move(prepared)) {}

  // Calls `model`, the module that was sharded (a holder, a pointer or the module itself), with `inputs`, as
  // PreparedModel::forward() does. In a torch::NoGradGuard it is an evaluation, in which all ranks make as
  // many calls; after unshard() each rank makes its own.
  template <class Model, class... Inputs>
  auto forward(Model&& model, Inputs&&... inputs) {
    return prepared_->forward(std::forward<Model>(model), std::forward<Inputs>(inputs)...);
  }
  // Keeps the gradients of forward() and backward() on this rank while the result lives; the first pass after
  // it combines their sum with its own. Put both calls inside it.
  LocalPasses no_sync() { return prepared_->no_sync(); }
  // Sets the samples behind this rank's gradients of the next step: LocalBatch::samples.
  void set_local_samples(std::int64_t samples) { prepared_->set_local_samples(samples); }
  // As torch::nn::utils::clip_grad_norm_ with the norm over the parameters of all ranks, between backward()
  // and step(). Returns the norm before. Collective.
  double clip_grad_norm_(double max_norm) { return prepared_->clip_gradients(max_norm); }
  // Makes the optimizer's step after backward(). Throws UsageError for an optimizer that was not made of
  // parameters(), and for one that looks at more of a parameter than its elements one by one. Collective.
  void step(torch::optim::Optimizer& optimizer) { prepared_->step(optimizer); }
  // As PreparedModel::step() with a closure.
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure) {
    return prepared_->step(optimizer, closure);
  }

  // Returns what this rank's optimizer updates: flat shards of the parameters.
  std::vector<at::Tensor> parameters() { return module().parameters(); }
  torch::nn::Module& module() { return prepared_->module(); }  // has them under the names of the parameters
  // Gathers all parameters on every rank until the next training step: to evaluate, to export. Collective.
  void unshard() { prepared_->unshard(); }
  // The same as a scope that can write changes back. Collective.
  SummonFullParams summon_full_params() { return SummonFullParams(*prepared_); }

  // The full parameters and buffers by name, on every rank; of any number of ranks and any strategy. See
  // rondo/strategy/state_dict.h, which has shards too. Collective.
  std::vector<ModelTensor> state_dict();
  void load_state_dict(const std::vector<ModelTensor>& state);  // likewise
  // The full state of an optimizer of parameters(). Likewise.
  OptimizerSnapshot optimizer_state_dict(torch::optim::Optimizer& optimizer);
  // And back. Likewise.
  void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const OptimizerSnapshot& state);

  // What functions on prepared models take: rondo::save({context, *model, fsdp.prepared(), optimizer}, ...).
  PreparedModel& prepared() { return *prepared_; }

 private:
  std::unique_ptr<PreparedModel> prepared_;
};

// Shards `module` over the ranks of `context`, by units (rondo::Unit, rondo::wrap_units()); rank 0's values
// count. Make the optimizer afterwards. Collective. Throws UsageError for a module that is null, without
// parameters or prepared already, and for options that cannot be; MismatchError where models differ.
FullyShardedModel fully_shard(std::shared_ptr<torch::nn::Module> module, const Context& context,
                              const FullyShardOptions& options = {});
// The same for a module holder.
template <class Impl>
FullyShardedModel fully_shard(const torch::nn::ModuleHolder<Impl>& model, const Context& context,
                              const FullyShardOptions& options = {}) {
  return fully_shard(std::shared_ptr<torch::nn::Module>(model.ptr()), context, options);
}

}  // namespace rondo
