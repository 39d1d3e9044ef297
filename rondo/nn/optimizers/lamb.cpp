#include "rondo/nn/optimizers/lamb.h"

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

}  // namespace rondo
