#include "rondo/precision/training_precision.h"

#include <torch/types.h>

#include "rondo/precision/cast_model.h"

namespace rondo {

TrainingPrecision::TrainingPrecision(const PrecisionOptions& options, c10::Device device, Group group)
    : settings_(resolve(options)), device_(device) {
  if (!settings_.loss_scale.scales()) return;
  GradScaler::Options scaler;
  if (!settings_.loss_scale.dynamic || settings_.loss_scale.value != 1)
    scaler.init_scale = settings_.loss_scale.value;
  scaler_.emplace(scaler, std::move(group));
}

MixedPrecisionPolicy TrainingPrecision::policy_for_strategy() const {
  return {.param_dtype = settings_.cast_model_type, .keep_batchnorm_fp32 = settings_.keep_batchnorm_fp32};
}

void TrainingPrecision::cast(torch::nn::Module& model) const {
  if (!settings_.cast_model_type) return;
  // A strategy that keeps the master weights casts the parameters itself.
  const auto cast_what = masters_elsewhere_ ? cast_buffers : cast_model;
  cast_what(model, *settings_.cast_model_type, settings_.keep_batchnorm_fp32);
}

ForwardFunction TrainingPrecision::cast_around(ForwardFunction forward) const {
  if (!settings_.cast_model_type) return forward;
  return [dtype = *settings_.cast_model_type, forward = std::move(forward)](const Tensors& inputs) {
    Tensors cast = inputs;
    for (at::Tensor& input : cast) {
      if (input.is_floating_point()) input = input.to(dtype);
    }
    Tensors outputs = forward.run(cast);
    for (at::Tensor& output : outputs) {
      if (output.is_floating_point()) output = output.to(at::kFloat);
    }
    return outputs;
  };
}

void TrainingPrecision::keep_master_weights(torch::nn::Module& model) {
  if (settings_.master_weights && !masters_elsewhere_) master_weights_.emplace(model);
}

std::unique_ptr<Autocast> TrainingPrecision::autocast() const {
  if (!settings_.patch_functions) return nullptr;
  return std::make_unique<Autocast>(device_.type(), settings_.dtype);
}

bool TrainingPrecision::finish_gradients(torch::optim::Optimizer& optimizer) {
  if (master_weights_) master_weights_->take_gradients();
  if (!scaler_) return true;
  scaler_->unscale_(optimizer);
  return !scaler_->found_inf(optimizer);
}

bool TrainingPrecision::step(torch::optim::Optimizer& optimizer,
                             const std::function<void()>& optimizer_step) {
  bool stepped = true;
  if (scaler_) {
    stepped = scaler_->step(optimizer, optimizer_step);
    scaler_->update(settings_.loss_scale.dynamic ? std::optional<double>() : scaler_->get_scale());
  } else {
    optimizer_step();
  }
  if (master_weights_ && stepped) master_weights_->write_back();
  return stepped;
}

std::optional<double> TrainingPrecision::loss_scale() const {
  if (!scaler_) return {};
  return scaler_->get_scale();
}

nlohmann::json TrainingPrecision::state() const {
  nlohmann::json state = nlohmann::json::object();
  if (scaler_) state["scaler"] = scaler_->state_dict();
  return state;
}

void TrainingPrecision::restore(const nlohmann::json& state) {
  // A constant scale is what the options say, not what the checkpoint had.
  if (scaler_ && settings_.loss_scale.dynamic && state.contains("scaler"))
    scaler_->load_state_dict(state.at("scaler"));
}

}  // namespace rondo
