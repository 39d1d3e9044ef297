#include "rondo/nn/optimizers/optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/fused_adam.h"
#include "rondo/nn/optimizers/optimizer_fields.h"

namespace rondo {
namespace {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using MadeOptimizer = std::unique_ptr<torch::optim::Optimizer>;

template <class Optimizer, class Options>
MadeOptimizer make_adam(const OptimizerOptions& options, const Groups& groups) {
  return std::make_unique<Optimizer>(groups, Options(options.learning_rate)
                                                 .betas({options.beta1, options.beta2})
                                                 .eps(options.epsilon)
                                                 .weight_decay(options.weight_decay));
}

MadeOptimizer make_sgd(const OptimizerOptions& options, const Groups& groups) {
  return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(options.learning_rate)
                                                         .momentum(options.momentum)
                                                         .weight_decay(options.weight_decay));
}

MadeOptimizer make_adagrad(const OptimizerOptions& options, const Groups& groups) {
  return std::make_unique<torch::optim::Adagrad>(groups, torch::optim::AdagradOptions(options.learning_rate)
                                                             .eps(options.epsilon)
                                                             .weight_decay(options.weight_decay));
}

template <class Rule>
MadeOptimizer make_rule(const OptimizerOptions& options, const Groups& groups) {
  return std::make_unique<Rule>(groups, RuleOptions(options.learning_rate)
                                            .betas({options.beta1, options.beta2})
                                            .eps(options.epsilon)
                                            .weight_decay(options.weight_decay)
                                            .momentum(options.momentum)
                                            .trust(options.trust));
}

struct OptimizerKind {
  const char* name;
  MadeOptimizer (*make)(const OptimizerOptions&, const Groups&);
};
constexpr OptimizerKind kOptimizerKinds[] = {{"adagrad", make_adagrad},
                                             {"adam", make_adam<FusedAdam, torch::optim::AdamOptions>},
                                             {"adamw", make_adam<FusedAdamW, torch::optim::AdamWOptions>},
                                             {"lamb", make_rule<Lamb>},
                                             {"lars", make_rule<Lars>},
                                             {"lion", make_rule<Lion>},
                                             {"sgd", make_sgd}};

void check_not_negative(const char* what, double value) {
  if (!(value >= 0)) throw UsageError(str(what, " ", value, " must be zero or more"));
}

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

// Returns all parameters, those without weight decay in a second group.
Groups parameter_groups(const OptimizerOptions& options, torch::nn::Module& module) {
  std::vector<at::Tensor> decayed;
  std::vector<at::Tensor> undecayed;
  std::vector<bool> used(options.undecayed.size(), false);
  for (const ModelTensor& parameter : tensors_of(module).parameters) {
    bool without = false;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!matches(options.undecayed[i], parameter.name)) continue;
      used[i] = without = true;
    }
    (without ? undecayed : decayed).push_back(parameter.tensor);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i])
      throw UsageError(str("no parameter is called '", options.undecayed[i],
                           "', which is listed as having no weight decay"));
  }
  Groups groups;
  if (!decayed.empty() || undecayed.empty()) groups.emplace_back(std::move(decayed));
  if (!undecayed.empty()) groups.emplace_back(std::move(undecayed));
  return groups;
}

// Sets the second group's decay to 0 after construction: libtorch treats a group's option that equals its
// type's default as not given.
void stop_decay(torch::optim::Optimizer& optimizer) {
  auto& options = optimizer.param_groups().back().options();
  with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    visit_options(static_cast<typename Kind::Options&>(options), [](std::string_view field, auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
        if (field == "weight_decay") value = 0;
      }
    });
  });
}

}  // namespace

MadeOptimizer make_optimizer(const OptimizerOptions& options, torch::nn::Module& module) {
  check_not_negative("learning rate", options.learning_rate);
  check_not_negative("weight decay", options.weight_decay);
  check_not_negative("momentum", options.momentum);
  check_not_negative("epsilon", options.epsilon);
  check_not_negative("trust", options.trust);
  for (const double beta : {options.beta1, options.beta2}) {
    if (!(beta >= 0 && beta < 1)) throw UsageError(str("beta ", beta, " must lie in [0, 1)"));
  }
  for (const OptimizerKind& kind : kOptimizerKinds) {
    if (options.name != kind.name) continue;
    MadeOptimizer optimizer = kind.make(options, parameter_groups(options, module));
    if (!options.undecayed.empty()) stop_decay(*optimizer);
    return optimizer;
  }
  throw UsageError(str("unknown optimizer '", options.name, "'; known are: ", join(optimizer_names(), ", ")));
}

std::vector<std::string> non_matrix_parameters(const torch::nn::Module& model) {
  std::vector<std::string> names;
  for (const ModelTensor& parameter : tensors_of(model).parameters) {
    if (parameter.tensor.dim() <= 1) names.push_back(parameter.name);
  }
  return names;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : kOptimizerKinds) names.emplace_back(kind.name);
  return names;
}

}  // namespace rondo
