#include "rondo/nn/optimizers/rules.h"

#include <torch/types.h>

#include <cmath>

namespace rondo {

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
