#include "rondo/precision/training_precision.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "rondo/precision/autocast.h"
#include "rondo/precision/options.h"

namespace rondo {
namespace {

using Masters = std::map<const c10::TensorImpl*, at::Tensor>;

// A builder of modules with the same children, names and tensors, in which `masters` replace parameters.
class Twin {
 public:
  explicit Twin(const Masters& masters) : master_weights_(masters) {}

  std::shared_ptr<torch::nn::Module> of(const torch::nn::Module& module) {
    std::shared_ptr<torch::nn::Module>& twin = twins_[&module];
    if (twin) return twin;
    twin = std::make_shared<torch::nn::Module>(module.name());
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto master = master_weights_.find(parameter.value().unsafeGetTensorImpl());
      const at::Tensor& tensor = master == master_weights_.end() ? parameter.value() : master->second;
      twin->register_parameter(parameter.key(), tensor, tensor.requires_grad());
    }
    for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
      twin->register_buffer(buffer.key(), buffer.value());
    }
    const std::shared_ptr<torch::nn::Module> result = twin;
    for (const auto& child : module.named_children())
      result->register_module(child.key(), of(*child.value()));
    return result;
  }

 private:
  const Masters& master_weights_;
  std::map<const torch::nn::Module*, std::shared_ptr<torch::nn::Module>> twins_;
};

}  // namespace

MasterWeights::MasterWeights(torch::nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) {
    if (!is_half_width(parameter.scalar_type())) continue;
    at::Tensor master = parameter.detach().to(at::kFloat).requires_grad_(parameter.requires_grad());
    if (!masters_.emplace(parameter.unsafeGetTensorImpl(), master).second) continue;  // shared parameter
    pairs_.push_back({parameter, std::move(master)});
  }
  module_ = Twin(masters_).of(model);
}

at::Tensor MasterWeights::of(const at::Tensor& parameter) const {
  const auto found = masters_.find(parameter.unsafeGetTensorImpl());
  return found == masters_.end() ? parameter : found->second;
}

void MasterWeights::take_gradients() {
  const torch::NoGradGuard no_gradients;
  for (Pair& pair : pairs_) {
    at::Tensor& gradient = pair.parameter.mutable_grad();
    pair.master.mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : at::Tensor();
    gradient = at::Tensor();
  }
}

void MasterWeights::write_back() {
  const torch::NoGradGuard no_gradients;
  for (Pair& pair : pairs_) pair.parameter.copy_(pair.master);
}

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
  // A constant scale comes from the options, not from the checkpoint.
  if (scaler_ && settings_.loss_scale.dynamic && state.contains("scaler"))
    scaler_->load_state_dict(state.at("scaler"));
}

}  // namespace rondo
