#include "rondo/nn/optimizers/rule_optimizer.h"

#include <torch/nn/module.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "rondo/base/error.h"

namespace rondo {

void RuleOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(trust);
}

void RuleOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, momentum);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, trust);
}

void RuleState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}

void RuleState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg_sq);
}

RuleOptimizer::RuleOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                             const RuleOptions& options)
    : Optimizer(groups, std::make_unique<RuleOptions>(options)) {}

at::Tensor RuleOptimizer::step(LossClosure closure) {
  const torch::NoGradGuard no_gradients;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  std::vector<Part> parts;
  for (auto& group : param_groups_) {
    const auto& options = static_cast<const RuleOptions&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      Part part{parameter, parameter.grad(), &options, nullptr};
      if (part.gradient.defined()) {
        if (part.gradient.is_sparse())
          throw UsageError("lion, lamb and lars do not take sparse gradients; use sgd or adagrad");
        auto& slot = state_[parameter.unsafeGetTensorImpl()];
        if (!slot) slot = std::make_unique<RuleState>();
        part.state = static_cast<RuleState*>(slot.get());
        part.state->step(part.state->step() + 1);
      }
      parts.push_back(std::move(part));
    }
  }
  apply(parts);
  return loss;
}

at::Tensor& RuleOptimizer::made(at::Tensor& moment, const at::Tensor& parameter) {
  if (!moment.defined()) moment = at::zeros_like(parameter, at::MemoryFormat::Preserve);
  return moment;
}

void RuleOptimizer::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<RuleState, RuleOptions>(archive, *this);
}

void RuleOptimizer::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<RuleState, RuleOptions>(archive, *this);
}

at::Tensor squared_norm(const at::Tensor& tensor) {
  // libtorch does not define a float64 norm of complex numbers.
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.detach().resolve_conj()) : tensor;
  return at::linalg_vector_norm(real, 2, {}, false, at::kDouble).square().cpu();
}

std::vector<WholeNormOptimizer::Norms> WholeNormOptimizer::norms(
    const std::vector<Part>& parts, const std::vector<at::Tensor>& directions) const {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> values;
  const at::Tensor zero = at::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parameters.push_back(parts[i].parameter);
    const bool moves = directions[i].defined();
    values.push_back(moves ? squared_norm(parts[i].parameter) : zero);
    values.push_back(moves ? squared_norm(directions[i]) : zero);
  }
  at::Tensor squares = at::stack(values).reshape({static_cast<std::int64_t>(parts.size()), 2});
  if (sum_) sum_(parameters, squares);
  std::vector<Norms> result;
  const double* square = squares.const_data_ptr<double>();
  for (std::size_t i = 0; i < parts.size(); ++i)
    result.push_back({std::sqrt(square[2 * i]), std::sqrt(square[2 * i + 1])});
  return result;
}

void Lamb::apply(const std::vector<Part>& parts) {
  std::vector<at::Tensor> directions(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (!part.gradient.defined()) continue;
    const auto [beta1, beta2] = part.options->betas();
    const auto step = static_cast<double>(part.state->step());
    at::Tensor& average = made(part.state->exp_avg(), part.parameter);
    at::Tensor& square = made(part.state->exp_avg_sq(), part.parameter);
    average.mul_(beta1).add_(part.gradient, 1 - beta1);
    square.mul_(beta2).addcmul_(part.gradient, part.gradient, 1 - beta2);
    const at::Tensor scale = (square / (1 - std::pow(beta2, step))).sqrt_().add_(part.options->eps());
    directions[i] = (average / (1 - std::pow(beta1, step))).div_(scale);
    if (part.options->weight_decay() != 0) directions[i].add_(part.parameter, part.options->weight_decay());
  }
  const std::vector<Norms> lengths = norms(parts, directions);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!directions[i].defined()) continue;
    const auto [parameter, direction] = lengths[i];
    const double trust = parameter > 0 && direction > 0 ? parameter / direction : 1.0;
    at::Tensor(parts[i].parameter).add_(directions[i], -parts[i].options->lr() * trust);
  }
}

void Lars::apply(const std::vector<Part>& parts) {
  std::vector<at::Tensor> gradients;
  for (const Part& part : parts) gradients.push_back(part.gradient);
  const std::vector<Norms> lengths = norms(parts, gradients);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const RuleOptions& options = *parts[i].options;
    const auto [weight, gradient] = lengths[i];
    const double rate =
        weight > 0 && gradient > 0
            ? options.trust() * weight / (gradient + options.weight_decay() * weight + options.eps())
            : 1.0;
    at::Tensor parameter = parts[i].parameter;
    at::Tensor change = gradients[i].add(parameter, options.weight_decay()).mul_(rate);
    if (options.momentum() != 0) {
      at::Tensor& average = made(parts[i].state->exp_avg(), parameter);
      change = average.mul_(options.momentum()).add_(change);
    }
    parameter.add_(change, -options.lr());
  }
}

void Lion::apply(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (!part.gradient.defined()) continue;
    const RuleOptions& options = *part.options;
    const auto [beta1, beta2] = options.betas();
    at::Tensor& average = made(part.state->exp_avg(), part.parameter);
    const at::Tensor direction = (average * beta1).add_(part.gradient, 1 - beta1).sign_();
    at::Tensor parameter = part.parameter;
    parameter.mul_(1 - options.lr() * options.weight_decay()).add_(direction, -options.lr());
    average.mul_(beta2).add_(part.gradient, 1 - beta2);
  }
}

}  // namespace rondo
