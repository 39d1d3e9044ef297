#pragma once

#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/model_tensors.h"
#include "rondo/nn/unit.h"
#include "rondo/parallel/registry.h"
#include "rondo/strategy/prepared_model.h"
#include "tests/backend/ranks.h"
#include "tests/parallel/sharded/layers.h"
#include "tests/parallel/small_models.h"

// Training loops written by a user, with a mistake in each, on ranks and in one process.
namespace rondo::testing::loop_mistakes {

// A model with units between two layers outside of units, and a frozen layer.
struct LoopNetImpl : torch::nn::Module {
  LoopNetImpl() {
    input = register_module("input", torch::nn::Linear(6, 5));
    first = register_module("first", Unit<Residual>(5));
    second = register_module("second", Unit<Residual>(5));
    frozen = register_module("frozen", torch::nn::Linear(5, 5));
    output = register_module("output", torch::nn::Linear(5, 4));
    to(at::kDouble);
    fill_parameters(*this, 5);
    frozen->weight.set_requires_grad(false);
    frozen->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return output(frozen(second(first(input(x))))); }
  torch::nn::Linear input{nullptr}, frozen{nullptr}, output{nullptr};
  Unit<Residual> first{nullptr}, second{nullptr};
};
TORCH_MODULE(LoopNet);

using SharedOptimizer = std::shared_ptr<torch::optim::Optimizer>;

inline SharedOptimizer make_sgd(std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  return std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
}

inline constexpr std::int64_t kJointSamples = 4;

inline Batch joint_of(int step) { return joint_batch(kJointSamples, static_cast<std::uint64_t>(step)); }

// The same program in one process. `seen` holds figures that the loop reads.
struct Alone {
  Alone() : optimizer(make_sgd(model->parameters())) {}
  at::Tensor loss(int step) {
    const Batch batch = joint_of(step);
    return mean_loss(model(batch.input), batch);
  }
  void backward(int step) { loss(step).backward(); }
  void step(int number) {
    optimizer->zero_grad();
    backward(number);
    optimizer->step();
  }
  void see_loss(int step) {
    const at::NoGradGuard no_grad;
    seen.push_back(loss(step).item<double>());
  }
  LoopNet model;
  SharedOptimizer optimizer;
  std::vector<double> seen;
};

// The program of each rank.
struct Program {
  Program(Context& of_rank, const std::string& strategy_name, bool spans_hosts)
      : context(of_rank), between_hosts(spans_hosts), strategy(make()(strategy_name)), name(strategy_name) {}
  std::function<std::unique_ptr<Strategy>(const std::string&)> make() {
    return [this](const std::string& strategy_name) { return all_strategies().make(strategy_name, context); };
  }

  void prepare() {
    prepared = strategy->prepare(model.ptr());
    optimizer = make_sgd(prepared->module().parameters());
  }
  void begin(LocalBatch batch = {}) {
    batch.samples = kJointSamples / context.world_size();
    prepared->begin_step(batch);
  }
  at::Tensor loss(int step) {
    const Batch batch = my_rows(joint_of(step), context.world());
    return mean_loss(model(batch.input), batch);
  }
  void backward(int step) { loss(step).backward(); }
  void finish() { prepared->finish_backward(); }
  void update() { prepared->step(*optimizer); }
  void step(int number, const LocalBatch& batch = {}) {
    optimizer->zero_grad();
    begin(batch);
    backward(number);
    finish();
    update();
  }
  // Records the loss of the joint batch, which each rank computes by itself.
  void see_loss(int step) {
    const at::NoGradGuard no_grad;
    const Batch batch = joint_of(step);
    seen.push_back(mean_loss(model(batch.input), batch).item<double>());
  }
  // Waits for all ranks on one host, where ranks write parameters that others read.
  void meet() {
    if (!between_hosts) barrier(context.world());
  }
  bool shards() const { return name != "ddp"; }

  Context& context;
  bool between_hosts;
  LoopNet model;
  std::unique_ptr<Strategy> strategy;
  std::string name;
  std::unique_ptr<PreparedModel> prepared;
  SharedOptimizer optimizer;
  std::vector<double> seen;
  bool is_over = false;  // set when the program ends early: no results are compared
};

struct Mistake {
  std::string name;
  // Calls and fields of rondo, one of which an error's message must contain.
  std::vector<std::string> named;
  std::function<void(Program&)> program;
  // Expected result if there is no error; null: an error is required.
  std::function<void(Alone&)> alone = nullptr;
  std::function<bool(const Program&)> applies = nullptr;  // null: everywhere
};

inline constexpr int kSteps = 3;

inline void each_step(const std::function<void(int)>& body) {
  for (int step = 0; step < kSteps; ++step) body(step);
}

inline void right_steps(Alone& alone) {
  each_step([&](int step) { alone.step(step); });
}

inline void does_nothing(Alone&) {}

inline const LocalBatch kUnread = {.gradients_are_read = false};
inline const LocalBatch kLocal = {.synchronise = false};

}  // namespace rondo::testing::loop_mistakes
