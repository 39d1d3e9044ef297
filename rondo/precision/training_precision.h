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

// float32 copies of a float16 or bfloat16 model's parameters. The optimizer, any of torch::optim or a user's
// own, is made of the copies and knows nothing of the model: small updates add up that would vanish in 8 or
// 11 bits of mantissa.
//
//   MasterWeights masters(*model);
//   torch::optim::Adam optimizer(masters.module().parameters(), 1e-3);
//   loss.backward();
//   masters.take_gradients();
//   optimizer.step();                  // or a GradScaler's unscale_() and step()
//   masters.write_back();
//
// One thread uses an object.
class MasterWeights {
 public:
  // Copies the parameters as they are now. The model's own tensors must stay: its structure, its parameters
  // (their values may change) and their requires_grad.
  explicit MasterWeights(torch::nn::Module& model);

  // A module of the model's structure and names, for optimizers and checkpoints: parameters of float16 and
  // bfloat16 are the copies, all others and the buffers the model's own tensors. A parameter shared by two
  // modules has one copy.
  torch::nn::Module& module() { return *module_; }
  // The copy of one of the model's parameters; the tensor itself where it has none.
  at::Tensor of(const at::Tensor& parameter) const;

  // The model's gradients move to the copies, in float32, replacing what is there; a parameter without a
  // gradient leaves its copy without one. Scaled gradients stay scaled.
  void take_gradients();
  // The copies, rounded, become the model's parameters: after the optimizer's step.
  void write_back();

 private:
  struct Pair {
    at::Tensor parameter;  // the model's
    at::Tensor master;
  };
  std::map<const c10::TensorImpl*, at::Tensor> masters_;  // by the model's parameter
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Pair> pairs_;
};

// Mixed precision of one training: what a training loop calls, in the order of a step. With opt level O0
// every call does nothing or the plain thing. One thread uses an object.
class TrainingPrecision {
 public:
  // Ranks of `group` agree on steps to skip. Throws UsageError as resolve() does.
  TrainingPrecision(const PrecisionOptions& options, c10::Device device, Group group);

  // From here on ranks of `group` agree.
  void set_group(Group group) {
    if (scaler_) scaler_->set_group(std::move(group));
  }

  // The knobs of the level, resolved.
  const PrecisionSettings& settings() const { return settings_; }

  // The strategy casts by this policy instead and keeps the master weights (Strategy::set_mixed_precision):
  // cast() and keep_master_weights() do nothing from now on. Only where the level has master weights.
  MixedPrecisionPolicy policy_for_strategy() const;
  void leave_master_weights_to_strategy() { masters_elsewhere_ = true; }  // from now on

  // Casts the model as the level says. Before a strategy or an optimizer sees it.
  void cast(torch::nn::Module& model) const;
  // The function with floating inputs and outputs cast: in to the model's dtype, out to float32.
  ForwardFunction cast_around(ForwardFunction forward) const;
  // Makes the master weights, if the level has them, of the model as it will be trained.
  void keep_master_weights(torch::nn::Module& model);
  // Null without.
  MasterWeights* master_weights() { return master_weights_ ? &*master_weights_ : nullptr; }

  // To live during the forward pass and the loss; null without autocast.
  std::unique_ptr<Autocast> autocast() const;
  // The loss as backward() is called on it: times the scale, where there is a scaler.
  at::Tensor scale(const at::Tensor& loss) { return scaler_ ? scaler_->scale(loss) : loss; }
  // Gradients are looked at between the backward pass and the step.
  bool reads_gradients() const { return scaler_.has_value() || master_weights_.has_value(); }
  // After the backward pass: gradients go to where the optimizer finds them, unscaled. Whether all are
  // finite, on all ranks; always true without a scaler.
  bool finish_gradients(torch::optim::Optimizer& optimizer);
  // `optimizer_step`, unless a gradient was not finite; then moves the scale. Whether it stepped.
  bool step(torch::optim::Optimizer& optimizer, const std::function<void()>& optimizer_step);

  // Of the next backward pass; empty without a scaler.
  std::optional<double> loss_scale() const;

  // What a checkpoint keeps: {"scaler": state_dict} or {}.
  nlohmann::json state() const;
  // State of a training without a scaler leaves this one's scaler at its start.
  void restore(const nlohmann::json& state);
  // After weights were loaded into master_weights().
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
