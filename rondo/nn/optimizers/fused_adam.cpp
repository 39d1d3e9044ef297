#include "rondo/nn/optimizers/fused_adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <tuple>
#include <vector>

#include "rondo/base/error.h"

namespace rondo {
namespace {

// Parameters for one kernel call, with the lists that it takes.
struct KernelLists {
  std::vector<at::Tensor> parameters, gradients, averages, squares, maximum_squares, steps;
};
using ListKey = std::tuple<c10::Device, c10::ScalarType>;
struct ListOrder {
  bool operator()(const ListKey& a, const ListKey& b) const {
    const auto number = [](const ListKey& key) {
      const c10::Device device = std::get<0>(key);
      return std::tuple(static_cast<int>(device.type()), device.index(), static_cast<int>(std::get<1>(key)));
    };
    return number(a) < number(b);
  }
};

template <class ParamState>
ParamState& state_of(const at::Tensor& parameter, bool amsgrad,
                     ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>& states) {
  auto& slot = states[parameter.unsafeGetTensorImpl()];
  if (!slot) {
    auto fresh = std::make_unique<ParamState>();
    fresh->exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    fresh->exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    if (amsgrad) fresh->max_exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    slot = std::move(fresh);
  }
  return static_cast<ParamState&>(*slot);
}

// Step counts as tensors. Nearly always all parameters have the same count, so one tensor is shared.
class StepTensors {
 public:
  const at::Tensor& get(std::int64_t step, c10::Device device) {
    if (!tensor_.defined() || step != step_ || tensor_.device() != device) {
      tensor_ = at::full({}, static_cast<double>(step), at::TensorOptions().dtype(at::kFloat).device(device));
      step_ = step;
    }
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  std::int64_t step_ = -1;
};

template <class Options, class ParamState, class Kernel, class States>
void fused_step(std::vector<torch::optim::OptimizerParamGroup>& groups, States& states, Kernel kernel) {
  StepTensors step_tensors;
  for (auto& group : groups) {
    const auto& options = static_cast<const Options&>(group.options());
    std::map<ListKey, KernelLists, ListOrder> batches;
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.is_sparse()) throw UsageError("fused Adam does not take sparse gradients; use sgd");
      auto& state = state_of<ParamState>(parameter, options.amsgrad(), states);
      state.step(state.step() + 1);
      KernelLists& lists = batches[{parameter.device(), parameter.scalar_type()}];
      lists.parameters.push_back(parameter);
      lists.gradients.push_back(gradient);
      lists.averages.push_back(state.exp_avg());
      lists.squares.push_back(state.exp_avg_sq());
      if (options.amsgrad()) lists.maximum_squares.push_back(state.max_exp_avg_sq());
      lists.steps.push_back(step_tensors.get(state.step(), parameter.device()));
    }
    for (auto& [key, lists] : batches) {
      kernel(lists.parameters, lists.gradients, lists.averages, lists.squares, lists.maximum_squares,
             lists.steps, options.lr(), std::get<0>(options.betas()), std::get<1>(options.betas()),
             options.weight_decay(), options.eps(), options.amsgrad());
    }
  }
}

at::Tensor evaluate_closure(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const at::AutoGradMode with_gradients(true);
  return closure();
}

}  // namespace

at::Tensor FusedAdam::step(LossClosure closure) {
  const torch::NoGradGuard no_gradients;
  at::Tensor loss = evaluate_closure(closure);
  fused_step<torch::optim::AdamOptions, torch::optim::AdamParamState>(
      param_groups_, state_,
      [](const auto&... lists_and_settings) { at::_fused_adam_(lists_and_settings..., /*maximize=*/false); });
  return loss;
}

at::Tensor FusedAdamW::step(LossClosure closure) {
  const torch::NoGradGuard no_gradients;
  at::Tensor loss = evaluate_closure(closure);
  fused_step<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
      param_groups_, state_, [](const auto&... lists_and_settings) {
        at::_fused_adamw_(lists_and_settings..., /*maximize=*/false);
      });
  return loss;
}

}  // namespace rondo
