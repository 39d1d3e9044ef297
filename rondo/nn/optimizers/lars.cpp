#include "rondo/nn/optimizers/lars.h"

#include <torch/types.h>

namespace rondo {

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

}  // namespace rondo
