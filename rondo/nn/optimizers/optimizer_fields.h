#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <string_view>

#include "rondo/nn/optimizers/rule_optimizer.h"

// The fields of libtorch's and rondo's optimizers. visit_options and visit_state of each call visit(name,
// field&) for every field. A new optimizer needs these two functions and a line in with_optimizer_kind().
namespace rondo {

template <class Visit>
void visit_options(torch::optim::SGDOptions& o, const Visit& visit) {
  visit("lr", o.lr());
  visit("momentum", o.momentum());
  visit("dampening", o.dampening());
  visit("weight_decay", o.weight_decay());
  visit("nesterov", o.nesterov());
}
template <class Visit>
void visit_state(torch::optim::SGDParamState& s, const Visit& visit) {
  visit("momentum_buffer", s.momentum_buffer());
}

// Adam and AdamW have types of their own with the same fields.
template <class Options, class Visit>
requires std::is_same_v<Options, torch::optim::AdamOptions> ||
    std::is_same_v<Options, torch::optim::AdamWOptions>
void visit_options(Options& o, const Visit& visit) {
  visit("lr", o.lr());
  visit("betas", o.betas());
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("amsgrad", o.amsgrad());
}
template <class State, class Visit>
requires std::is_same_v<State, torch::optim::AdamParamState> ||
    std::is_same_v<State, torch::optim::AdamWParamState>
void visit_state(State& s, const Visit& visit) {
  visit("step", s.step());
  visit("exp_avg", s.exp_avg());
  visit("exp_avg_sq", s.exp_avg_sq());
  visit("max_exp_avg_sq", s.max_exp_avg_sq());
}

template <class Visit>
void visit_options(torch::optim::RMSpropOptions& o, const Visit& visit) {
  visit("lr", o.lr());
  visit("alpha", o.alpha());
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("momentum", o.momentum());
  visit("centered", o.centered());
}
template <class Visit>
void visit_state(torch::optim::RMSpropParamState& s, const Visit& visit) {
  visit("step", s.step());
  visit("square_avg", s.square_avg());
  visit("momentum_buffer", s.momentum_buffer());
  visit("grad_avg", s.grad_avg());
}

template <class Visit>
void visit_options(torch::optim::AdagradOptions& o, const Visit& visit) {
  visit("lr", o.lr());
  visit("lr_decay", o.lr_decay());
  visit("weight_decay", o.weight_decay());
  visit("initial_accumulator_value", o.initial_accumulator_value());
  visit("eps", o.eps());
}
template <class Visit>
void visit_state(torch::optim::AdagradParamState& s, const Visit& visit) {
  visit("step", s.step());
  visit("sum", s.sum());
}

template <class Visit>
void visit_options(RuleOptions& o, const Visit& visit) {
  visit("lr", o.lr());
  visit("betas", o.betas());
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("momentum", o.momentum());
  visit("trust", o.trust());
}
template <class Visit>
void visit_state(RuleState& s, const Visit& visit) {
  visit("step", s.step());
  visit("exp_avg", s.exp_avg());
  visit("exp_avg_sq", s.exp_avg_sq());
}

struct SgdKind {
  static constexpr std::string_view name = "SGD";
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
};
struct AdamKind {
  static constexpr std::string_view name = "Adam";
  using Options = torch::optim::AdamOptions;
  using State = torch::optim::AdamParamState;
};
struct AdamWKind {
  static constexpr std::string_view name = "AdamW";
  using Options = torch::optim::AdamWOptions;
  using State = torch::optim::AdamWParamState;
};
struct RmspropKind {
  static constexpr std::string_view name = "RMSprop";
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
};
struct AdagradKind {
  static constexpr std::string_view name = "Adagrad";
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
};
struct LionKind {
  static constexpr std::string_view name = "Lion";
  using Options = RuleOptions;
  using State = RuleState;
};
struct LambKind {
  static constexpr std::string_view name = "LAMB";
  using Options = RuleOptions;
  using State = RuleState;
};
struct LarsKind {
  static constexpr std::string_view name = "LARS";
  using Options = RuleOptions;
  using State = RuleState;
};

// Calls use(kind) for the optimizer's type or base type. Returns false if the kind is unknown.
template <class Use>
bool with_optimizer_kind(const torch::optim::Optimizer& optimizer, const Use& use) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr) {
    use(SgdKind{});
  } else if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) {
    use(AdamKind{});
  } else if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) {
    use(AdamWKind{});
  } else if (dynamic_cast<const torch::optim::RMSprop*>(&optimizer) != nullptr) {
    use(RmspropKind{});
  } else if (dynamic_cast<const torch::optim::Adagrad*>(&optimizer) != nullptr) {
    use(AdagradKind{});
  } else if (dynamic_cast<const Lion*>(&optimizer) != nullptr) {
    use(LionKind{});
  } else if (dynamic_cast<const Lamb*>(&optimizer) != nullptr) {
    use(LambKind{});
  } else if (dynamic_cast<const Lars*>(&optimizer) != nullptr) {
    use(LarsKind{});
  } else {
    return false;
  }
  return true;
}

}  // namespace rondo
