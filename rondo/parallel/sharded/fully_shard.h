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

// Options of fully_shard(). The same on all ranks.
struct FullyShardOptions {
  // Stage of ZeRO: 1 shards the optimizer's state (strategy zero1), 2 also gradients, 3 also parameters.
  int zero_stage = 3;
  // Number of neighbouring ranks that share one copy of the model, with replicas between such groups (HSDP).
  // 0 is all ranks. Stage 3 only.
  int shard_ranks = 0;
  // Whether parameters are freed between forward and backward. An int is the number of neighbouring ranks
  // among which they stay sharded in between. Stage 3 only.
  std::variant<bool, int> reshard_after_forward = true;
  MixedPrecisionPolicy mixed_precision = {};  // dtypes of computation and communication
  OffloadOptions offload = {};                // parameters and optimizer state in memory-mapped files
  std::string codec = "none";                 // codec of float32 gradients (ShardedOptions::codec)
  bool find_unused_parameters = false;        // allows parameters without a gradient in some steps
  bool broadcast_buffers = true;  // whether forward passes first copy rank 0's buffers to all ranks
  // Names of parameters and buffers that stay whole and local to each rank (ShardedOptions::ignored).
  std::vector<std::string> ignored = {};
};

// A model with parameters, gradients and optimizer state sharded over ranks, for a training loop that the
// caller writes:
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
// The gradient is the mean over all samples of all ranks if the ranks call set_local_samples(), otherwise the
// mean over the ranks. Ranks make the same calls in the same order; one thread uses an object. A missing call
// is a UsageError that names it.
class FullyShardedModel {
 public:
  // Wraps a prepared model; use fully_shard() instead.
  explicit FullyShardedModel(std::unique_ptr<PreparedModel> prepared) : prepared_(std::move(prepared)) {}

  // Calls `model`, the sharded module (a holder, a pointer or the module itself), with `inputs`, as
  // PreparedModel::forward() does. Under torch::NoGradGuard the call is an evaluation, for which all ranks
  // must make the same number of calls. After unshard() ranks may make different numbers of calls.
  template <class Model, class... Inputs>
  auto forward(Model&& model, Inputs&&... inputs) {
    return prepared_->forward(std::forward<Model>(model), std::forward<Inputs>(inputs)...);
  }
  // Returns a guard during whose lifetime gradients stay on this rank. The first pass after it reduces their
  // sum together with its own gradients. Run forward() and backward() within it.
  LocalPasses no_sync() { return prepared_->no_sync(); }
  // Sets the number of samples of this rank in the next step (LocalBatch::samples).
  void set_local_samples(std::int64_t samples) { prepared_->set_local_samples(samples); }
  // Clips gradients like torch::nn::utils::clip_grad_norm_, with the norm over the parameters of all ranks.
  // Call it between backward() and step(). Returns the norm before clipping. Collective.
  double clip_grad_norm_(double max_norm) { return prepared_->clip_gradients(max_norm); }
  // Runs the optimizer's step after backward(). Throws UsageError for an optimizer that was not constructed
  // with parameters(), and for one whose update is neither elementwise nor that of LAMB or LARS. Collective.
  void step(torch::optim::Optimizer& optimizer) { prepared_->step(optimizer); }
  // Runs a step with a closure; see PreparedModel::step().
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure) {
    return prepared_->step(optimizer, closure);
  }

  // Returns the tensors that this rank's optimizer updates: flat shards of the parameters.
  std::vector<at::Tensor> parameters() { return module().parameters(); }
  // Returns a module with those tensors, under the names of the parameters.
  torch::nn::Module& module() { return prepared_->module(); }
  // Gathers all parameters on every rank until the next training step, for evaluation or export. Collective.
  void unshard() { prepared_->unshard(); }
  // Gathers all parameters for the lifetime of the result, which can also write changes back. Collective.
  SummonFullParams summon_full_params() { return SummonFullParams(*prepared_); }

  // Returns the full parameters and buffers by name, on every rank, independent of the number of ranks and
  // the strategy. See rondo/strategy/state_dict.h, which also has sharded state. Collective.
  std::vector<ModelTensor> state_dict();
  // Loads the result of state_dict(). Collective.
  void load_state_dict(const std::vector<ModelTensor>& state);
  // Returns the full state of an optimizer constructed with parameters(). Collective.
  OptimizerSnapshot optimizer_state_dict(torch::optim::Optimizer& optimizer);
  // Loads the result of optimizer_state_dict(). Collective.
  void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const OptimizerSnapshot& state);

  // Returns the prepared model for functions that take one, such as rondo::save({context, *model,
  // fsdp.prepared(), optimizer}, ...).
  PreparedModel& prepared() { return *prepared_; }

 private:
  std::unique_ptr<PreparedModel> prepared_;
};

// Shards `module` over the ranks of `context`, by units (rondo::Unit, rondo::wrap_units()), with rank 0's
// values. Construct the optimizer afterwards. Collective. Throws UsageError for a module that is null, has no
// parameters or is already prepared, and for invalid options. Throws MismatchError if models differ between
// ranks.
FullyShardedModel fully_shard(std::shared_ptr<torch::nn::Module> module, const Context& context,
                              const FullyShardOptions& options = {});
// Like above, for a module holder.
template <class Impl>
FullyShardedModel fully_shard(const torch::nn::ModuleHolder<Impl>& model, const Context& context,
                              const FullyShardOptions& options = {}) {
  return fully_shard(std::shared_ptr<torch::nn::Module>(model.ptr()), context, options);
}

}  // namespace rondo
