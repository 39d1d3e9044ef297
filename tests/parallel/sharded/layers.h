#pragma once

#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "rondo/backend/context.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/unit.h"
#include "tests/backend/ranks.h"
#include "tests/parallel/small_models.h"
#include "tests/parallel/strategy_told.h"

// A model of units, and its training in one process and on several ranks: the reference for all sharded
// strategies.
namespace rondo::testing {

// Computes x + tanh(linear(x) + shift), the work of one unit.
struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(std::int64_t width, const at::Tensor& shared_shift = {}) : linear(width, width) {
    register_module("linear", linear);
    shift = register_parameter("shift", shared_shift.defined() ? shared_shift : at::zeros({width}));
  }
  at::Tensor forward(const at::Tensor& x) { return x + torch::tanh(linear(x) + shift); }
  torch::nn::Linear linear;
  at::Tensor shift;
};
TORCH_MODULE(Residual);

// Consecutive units, of which two share a parameter and one is called twice; an unused parameter, and with
// `has_spare` an unused unit; a frozen parameter; a root around them.
struct LayersImpl : torch::nn::Module {
  explicit LayersImpl(std::int64_t width = 7, bool has_spare = false) {
    input = register_module("input", torch::nn::Linear(6, width));
    for (int i = 0; i < 4; ++i) {
      const at::Tensor shared = i == 3 ? layers[1]->shift : at::Tensor();
      layers.push_back(register_module("layer" + std::to_string(i), Unit<Residual>(width, shared)));
    }
    if (has_spare) register_module("spare", Unit<Residual>(width));
    unused = register_module("unused", torch::nn::Linear(3, 2));
    layers[2]->linear->bias.set_requires_grad(false);
    output = register_module("output", torch::nn::Linear(width, 4));
    to(at::kDouble);
    fill_parameters(*this, 5);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor value = input(x);
    for (auto& layer : layers) value = layer(value);
    return output(layers[0](value));
  }
  torch::nn::Linear input{nullptr}, output{nullptr}, unused{nullptr};
  std::vector<Unit<Residual>> layers;
};
TORCH_MODULE(Layers);

struct TrainingPlan {
  int steps = 8;
  int accumulate = 1;
  double clip_norm = 0;
  bool gradients_are_read = false;
  std::int64_t samples = 12;  // of the joint batch
};

inline std::unique_ptr<torch::optim::Optimizer> make_adamw(const torch::nn::Module& module) {
  return std::make_unique<torch::optim::AdamW>(distinct_parameters(module),
                                               torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
}

// Returns the parameters after training on all samples in one process.
inline std::vector<at::Tensor> train_alone(const TrainingPlan& plan, std::int64_t width = 7) {
  Layers model(width);
  const auto optimizer = make_adamw(*model);
  for (int step = 0; step < plan.steps; ++step) {
    optimizer->zero_grad();
    const Batch batch = joint_batch(plan.samples, static_cast<std::uint64_t>(step));
    mean_loss(model(batch.input), batch).backward();
    if (plan.clip_norm > 0) torch::nn::utils::clip_grad_norm_(distinct_parameters(*model), plan.clip_norm);
    optimizer->step();
  }
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach());
  return result;
}

// Runs `plan` on this rank's share of each joint batch.
inline void train_steps(const Context& context, PreparedModel& prepared, Layers& model,
                        torch::optim::Optimizer& optimizer, const TrainingPlan& plan) {
  const std::int64_t share = plan.samples / context.world_size();
  const std::int64_t micro = share / plan.accumulate;
  for (int step = 0; step < plan.steps; ++step) {
    optimizer.zero_grad();
    const Batch joint = joint_batch(plan.samples, static_cast<std::uint64_t>(step));
    for (int pass = 0; pass < plan.accumulate; ++pass) {
      prepared.begin_step({.samples = share,
                           .synchronise = pass + 1 == plan.accumulate,
                           .gradients_are_read = plan.gradients_are_read || plan.clip_norm > 0});
      const Batch batch = rows(joint, context.rank() * share + pass * micro, micro);
      const at::Tensor output = prepared.cast_output(model(prepared.cast_input(batch.input)));
      (mean_loss(output, batch) / plan.accumulate).backward();
    }
    prepared.finish_backward();
    if (plan.clip_norm > 0) prepared.clip_gradients(plan.clip_norm);
    prepared.step(optimizer);
  }
}

// Training of a Layers on one rank, step by step, on the rank's share of joint batches of 12.
struct RankTraining {
  RankTraining(Context& context, const std::string& strategy_name, const ShardedOptions& options)
      : context(context), strategy(make_strategy(strategy_name, context, options)) {
    prepared = strategy->prepare(model.ptr());
    optimizer = make_adamw(prepared->module());
  }
  void step(int number) {
    optimizer->zero_grad();
    const Batch batch = my_rows(joint_batch(12, static_cast<std::uint64_t>(number)), context.world());
    prepared->begin_step({.samples = batch.input.size(0), .gradients_are_read = false});
    mean_loss(model(batch.input), batch).backward();
    prepared->finish_backward();
    prepared->step(*optimizer);
  }
  Context& context;
  Layers model;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<PreparedModel> prepared;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

// Trains on the ranks of `context` and returns the whole model on every rank.
inline std::vector<at::Tensor> train_on_ranks(Context& context, const std::string& strategy_name,
                                              const ShardedOptions& options, const TrainingPlan& plan,
                                              std::int64_t width = 7) {
  const auto strategy = make_strategy(strategy_name, context, options);
  Layers model(width);
  // Ranks begin with different weights; rank 0's are used.
  if (context.rank() > 0) fill_parameters(*model, 99);
  const auto prepared = strategy->prepare(model.ptr());
  const auto optimizer = make_adamw(prepared->module());
  train_steps(context, *prepared, model, *optimizer, plan);
  prepared->unshard();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
  barrier(context.world());
  return result;
}

inline double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    largest = std::max(largest, largest_difference(a[i], b[i]));
  }
  return largest;
}

}  // namespace rondo::testing
