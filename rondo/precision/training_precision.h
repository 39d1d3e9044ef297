#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "rondo/nn/model.h"
#include "rondo/precision/autocast.h"
#include "rondo/precision/grad_scaler.h"
#include "rondo/precision/options.h"

namespace rondo {

// Float32 copies of a float16 or bfloat16 model's parameters. The optimizer, any of torch::optim or a user's
// own, is constructed from the copies. So small updates accumulate that would be lost in 8 or 11 bits of
// mantissa.
//
//   MasterWeights masters(*model);
//   torch::optim::Adam optimizer(masters.module().parameters(), 1e-3);
//   loss.backward();
//   masters.take_gradients();
//   optimizer.step();                  // or a GradScaler's unscale_() and step()
//   masters.write_back();
//
// An object is used by one thread.
class MasterWeights {
 public:
  // Copies the current values of the parameters. The model must keep its structure, its parameter tensors
  // (values may change) and their requires_grad.
  explicit MasterWeights(torch::nn::Module& model);

  // Returns a module with the model's structure and names, for optimizers and checkpoints. Its float16 and
  // bfloat16 parameters are the copies; all other parameters and the buffers are the model's own tensors. A
  // parameter shared by two modules has one copy.
  torch::nn::Module& module() { return *module_; }
  // Returns the copy of one of the model's parameters, or the tensor itself if it has none.
  at::Tensor of(const at::Tensor& parameter) const;

  // Moves the model's gradients to the copies in float32, replacing the copies' gradients. A parameter
  // without a gradient leaves its copy without one. Scaled gradients stay scaled.
  void take_gradients();
  // Rounds the copies and writes them to the model's parameters. Call it after the optimizer's step.
  void write_back();

 private:
  struct Pair {
    at::Tensor parameter;  // a parameter of the model
    at::Tensor master;
  };
  std::map<const c10::TensorImpl*, at::Tensor> masters_;  // copies by the model's parameter
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Pair> pairs_;
};

// Mixed precision for a training loop; the methods follow the order of a training step. With opt level O0
// every call does nothing or the operation without mixed precision. An object is used by one thread.
class TrainingPrecision {
 public:
  // Ranks of `group` agree on skipped steps. Throws UsageError as resolve() does.
  TrainingPrecision(const PrecisionOptions& options, c10::Device device, Group group);

  // Replaces the group whose ranks agree on skipped steps.
  void set_group(Group group) {
    if (scaler_) scaler_->set_group(std::move(group));
  }

  // Returns the resolved options.
  const PrecisionSettings& settings() const { return settings_; }

  // Returns the policy for a strategy that casts and keeps the master weights itself
  // (Strategy::set_mixed_precision). Use it only if the level has master weights.
  MixedPrecisionPolicy policy_for_strategy() const;
  // Makes the strategy responsible for the master weights: turns keep_master_weights() and the cast of
  // parameters in cast() off.
  void leave_master_weights_to_strategy() { masters_elsewhere_ = true; }

  // Casts the model as the level requires. Call it before a strategy or an optimizer is given the model.
  void cast(torch::nn::Module& model) const;
  // Returns `forward` with floating-point inputs cast to the model's dtype and outputs cast to float32.
  ForwardFunction cast_around(ForwardFunction forward) const;
  // Creates the master weights of the prepared model if the level has them.
  void keep_master_weights(torch::nn::Module& model);
  // Returns null without master weights.
  MasterWeights* master_weights() { return master_weights_ ? &*master_weights_ : nullptr; }

  // Returns a scope that must live during the forward pass and the loss; null without autocast.
  std::unique_ptr<Autocast> autocast() const;
  // Returns the loss to call backward() on, multiplied by the scale if there is a scaler.
  at::Tensor scale(const at::Tensor& loss) { return scaler_ ? scaler_->scale(loss) : loss; }
  // Returns whether gradients are read between the backward pass and the step.
  bool reads_gradients() const { return scaler_.has_value() || master_weights_.has_value(); }
  // Moves unscaled gradients to the optimizer's parameters after the backward pass. Returns whether all are
  // finite on all ranks; always true without a scaler.
  bool finish_gradients(torch::optim::Optimizer& optimizer);
  // Calls `optimizer_step` unless a gradient was not finite, then updates the scale. Returns whether it
  // stepped.
  bool step(torch::optim::Optimizer& optimizer, const std::function<void()>& optimizer_step);

  // Returns the scale of the next backward pass; empty without a scaler.
  std::optional<double> loss_scale() const;

  // Returns the state for a checkpoint: {"scaler": state_dict} or {}.
  nlohmann::json state() const;
  // Restores state(). A state without a scaler leaves this scaler at its initial value.
  void restore(const nlohmann::json& state);
  // Copies master weights to the model after weights were loaded into master_weights().
  void weights_changed() {
    if (master_weights_) master_weights_->write_back();
  }

 private:
  PrecisionSettings settings_;
  c10::Device device_;
  bool masters_elsewhere_ = false;
  std::optional<GradScaler> scaler_;
  std::optional<MasterWeights> master_weights_;
};

}  // namespace rondo
