#include "rondo/nn/optimizers/lion.h"

#include <torch/types.h>

namespace rondo {

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
