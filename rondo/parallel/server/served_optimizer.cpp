#include "rondo/parallel/server/served_optimizer.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/optimizer_fields.h"

namespace rondo {
namespace {

using server::OptimizerKind;
using server::OptimizerSpec;

[[noreturn]] void refuse_optimizer(const std::string& what) {
  throw UsageError(str("parameter servers have the optimizers SGD, Adam, AdamW and Adagrad, not ", what));
}

OptimizerSpec spec_of(const torch::optim::SGDOptions& options) {
  return {.kind = OptimizerKind::sgd,
          .nesterov = options.nesterov() ? 1U : 0U,
          .learning_rate = options.lr(),
          .weight_decay = options.weight_decay(),
          .momentum = options.momentum(),
          .dampening = options.dampening()};
}

template <class Options>
OptimizerSpec adam_of(const Options& options, OptimizerKind kind) {
  if (options.amsgrad()) refuse_optimizer("Adam with amsgrad");
  return {.kind = kind,
          .learning_rate = options.lr(),
          .weight_decay = options.weight_decay(),
          .beta1 = std::get<0>(options.betas()),
          .beta2 = std::get<1>(options.betas()),
          .epsilon = options.eps()};
}
OptimizerSpec spec_of(const torch::optim::AdamOptions& options) {
  return adam_of(options, OptimizerKind::adam);
}
OptimizerSpec spec_of(const torch::optim::AdamWOptions& options) {
  return adam_of(options, OptimizerKind::adamw);
}
OptimizerSpec spec_of(const torch::optim::AdagradOptions& options) {
  return {.kind = OptimizerKind::adagrad,
          .learning_rate = options.lr(),
          .weight_decay = options.weight_decay(),
          .epsilon = options.eps(),
          .learning_rate_decay = options.lr_decay(),
          .initial_accumulator = options.initial_accumulator_value()};
}
OptimizerSpec spec_of(const torch::optim::RMSpropOptions&) { refuse_optimizer("RMSprop"); }
OptimizerSpec spec_of(const RuleOptions&) { refuse_optimizer("Lion, LAMB or LARS"); }

// Calls use(tensor&...) or use(count&) for what a server's slots and count of updates are.
template <class Slots, class Count>
void visit_fields(torch::optim::SGDParamState& state, const Slots& slots, const Count&) {
  slots(0, state.momentum_buffer());
}
template <class Slots, class Count>
void visit_fields(torch::optim::AdamParamState& state, const Slots& slots, const Count& count) {
  slots(0, state.exp_avg());
  slots(1, state.exp_avg_sq());
  count(state.step());
}
template <class Slots, class Count>
void visit_fields(torch::optim::AdamWParamState& state, const Slots& slots, const Count& count) {
  slots(0, state.exp_avg());
  slots(1, state.exp_avg_sq());
  count(state.step());
}
template <class Slots, class Count>
void visit_fields(torch::optim::AdagradParamState& state, const Slots& slots, const Count& count) {
  slots(0, state.sum());
  count(state.step());
}
template <class Slots, class Count>
void visit_fields(torch::optim::RMSpropParamState&, const Slots&, const Count&) {
  refuse_optimizer("RMSprop");
}
template <class Slots, class Count>
void visit_fields(RuleState&, const Slots&, const Count&) {
  refuse_optimizer("Lion, LAMB or LARS");
}

}  // namespace

OptimizerSpec served_optimizer(const torch::optim::Optimizer& optimizer, std::size_t group) {
  OptimizerSpec spec;
  const torch::optim::OptimizerOptions& options =
      const_cast<torch::optim::Optimizer&>(optimizer).param_groups()[group].options();
  const bool known = with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    spec = spec_of(static_cast<const typename Kind::Options&>(options));
  });
  if (!known) refuse_optimizer("one of one's own");
  return spec;
}

void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, const ServedState& served) {
  with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<typename Kind::State>();
    visit_fields(
        static_cast<typename Kind::State&>(*state),
        [&](int slot, at::Tensor& tensor) { tensor = served.slots[slot]; },
        [&](std::int64_t& updates) { updates = static_cast<std::int64_t>(served.updates); });
  });
}

ServedState state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  ServedState served;
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end() || !found->second) return served;
  with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    // SGD counts nothing: a momentum that is there has had an update.
    visit_fields(
        static_cast<typename Kind::State&>(*found->second),
        [&](int slot, at::Tensor& tensor) {
          served.slots[slot] = tensor;
          if (tensor.defined()) served.updates = 1;
        },
        [&](std::int64_t& updates) { served.updates = static_cast<std::uint64_t>(updates); });
  });
  return served;
}

}  // namespace rondo
