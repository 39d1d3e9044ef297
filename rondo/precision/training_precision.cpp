#include "rondo/precision/training_precision.h"

#include <torch/types.h>

#include "rondo/precision/cast_model.h"

namespace rondo {

TrainingPrecision::TrainingPrecision(const PrecisionOptions& options, c10::Device device, Group group)
    : settings_(resolve(options)), device_(device) {
  if (!settings_.loss_scale.scales()) return;
  GradScaler::Options scaler;
  if (!settings_.loss_scale.dynamic) scaler.init_scale = settings_.loss_scale.value;
  scaler_.emplace(scaler, std::move(group));
}

MixedPrecisionPolicy TrainingPrecision::policy_for_strategy() const {
  return {.param_dtype = settings_.cast_model_type, .keep_batchnorm_fp32 = settings_.keep_batchnorm_fp32};
}

void TrainingPrecision::cast(torch::nn::Module& model) const {
  if (!settings_.cast_model_type) return;
  // A strategy that keeps the masters casts the parameters itself.
  const auto cast_what = masters_elsewhere_ ? cast_buffers : cast_model;
  cast_what(model, *settings_.cast_model_type, settings_.keep_batchnorm_fp32);
}

std::function<at::Tensor(const at::Tensor&)> TrainingPrecision::cast_around(
    std::function<at::Tensor(const at::Tensor&)> forward) const {
  if (!settings_.cast_model_type) return forward;
  return [dtype = *settings_.cast_model_type, forward = std::move(forward)](const at::Tensor& input) {
    const at::Tensor output = forward(input.is_floating_point() ? input.to(dtype) : input);
    return output.is_floating_point() ? output.to(at::kFloat) : output;
  };
}

void TrainingPrecision::keep_masters(torch::nn::Module& model) {
  if (settings_.master_weights && !masters_elsewhere_) masters_.emplace(model);
}

std::unique_ptr<Autocast> TrainingPrecision::autocast() const {
  if (!settings_.patch_functions) return nullptr;
  return std::make_unique<Autocast>(device_.type(), settings_.dtype);
}

bool TrainingPrecision::finish_gradients(torch::optim::Optimizer& optimizer) {
  if (masters_) masters_->take_gradients();
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
  if (masters_ && stepped) masters_->write_back();
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
