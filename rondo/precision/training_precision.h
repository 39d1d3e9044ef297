#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "rondo/nn/model.h"
#include "rondo/precision/autocast.h"
#include "rondo/precision/grad_scaler.h"
#include "rondo/precision/master_weights.h"
#include "rondo/precision/mixed_precision_policy.h"
#include "rondo/precision/options.h"

namespace rondo {

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
