#include "rondo/train/optimizer.h"

#include <torch/optim/sgd.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/train/fused_adam.h"

namespace rondo {
namespace {

using Parameters = std::vector<at::Tensor>;

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make_adam(const OptimizerOptions& options, Parameters parameters) {
  return std::make_unique<Optimizer>(std::move(parameters), Options(options.learning_rate)
                                                                .betas({options.beta1, options.beta2})
                                                                .eps(options.epsilon)
                                                                .weight_decay(options.weight_decay));
}

std::unique_ptr<torch::optim::Optimizer> make_sgd(const OptimizerOptions& options, Parameters parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(options.learning_rate)
                                                 .momentum(options.momentum)
                                                 .weight_decay(options.weight_decay));
}

struct Kind {
  const char* name;
  std::unique_ptr<torch::optim::Optimizer> (*make)(const OptimizerOptions&, Parameters);
};
constexpr Kind kKinds[] = {{"adam", make_adam<FusedAdam, torch::optim::AdamOptions>},
                           {"adamw", make_adam<FusedAdamW, torch::optim::AdamWOptions>},
                           {"sgd", make_sgd}};

void check_not_negative(const char* what, double value) {
  if (!(value >= 0)) throw UsageError(str(what, " ", value, " must be zero or more"));
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        torch::nn::Module& module) {
  check_not_negative("learning rate", options.learning_rate);
  check_not_negative("weight decay", options.weight_decay);
  check_not_negative("momentum", options.momentum);
  check_not_negative("epsilon", options.epsilon);
  for (const double beta : {options.beta1, options.beta2}) {
    if (!(beta >= 0 && beta < 1)) throw UsageError(str("beta ", beta, " must lie in [0, 1)"));
  }
  for (const Kind& kind : kKinds) {
    if (options.name == kind.name) return kind.make(options, distinct_parameters(module));
  }
  throw UsageError(str("unknown optimizer '", options.name, "'; known are: ", join(optimizer_names(), ", ")));
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

}  // namespace rondo
