#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/parallel/sharded/layers.h"

// What units may be beyond one tensor in and one out, and where that ends (docs/sharded.md, Limits).
namespace rondo::testing {
namespace {

// Two tensors out, in a tuple; one of them may stay unused.
struct SplitImpl : torch::nn::Module {
  SplitImpl() : linear(6, 8) { register_module("linear", linear); }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x) {
    const at::Tensor y = linear(x);
    return {y.narrow(1, 0, 4), {y.narrow(1, 4, 2), y.narrow(1, 6, 2)}};
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Split);

// A unit within a unit, which takes two tensors.
struct OuterImpl : torch::nn::Module {
  OuterImpl() : own(4, 4), inner(4) {
    register_module("own", own);
    register_module("inner", inner);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return inner(own(x)) + at::cat({y, y}, 1); }
  torch::nn::Linear own;
  Unit<Residual> inner;
};
TORCH_MODULE(Outer);

// Its first unit is given data, which needs no gradient. There is no root.
struct UnusualImpl : torch::nn::Module {
  UnusualImpl() {
    register_module("split", split);
    register_module("outer", outer);
    to(at::kDouble);
    fill_parameters(*this, 5);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto [first, rest] = split(x);
    return outer(first, rest[0]);
  }
  Unit<Split> split;
  Unit<Outer> outer;
};
TORCH_MODULE(Unusual);

std::vector<at::Tensor> train(Unusual& model, Context* context, const std::string& strategy_name) {
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<PreparedModel> prepared;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (context != nullptr) {
    StrategyOptions options;
    options.strategy_seed = 3;
    strategy = all_strategies().make(strategy_name, *context, options);
    prepared = strategy->prepare(model.ptr());
  }
  optimizer = make_adamw(prepared ? prepared->module() : *model);
  for (int step = 0; step < 3; ++step) {
    Batch batch = joint_batch(8, static_cast<std::uint64_t>(step));
    if (context != nullptr) batch = rows(batch, context->rank() * 4, 4);
    optimizer->zero_grad();
    if (prepared) prepared->begin_step({.samples = 4, .gradients_are_read = false});
    mean_loss(model(batch.input), batch).backward();
    if (prepared) {
      prepared->finish_backward();
      prepared->step(*optimizer);
    } else {
      optimizer->step();
    }
  }
  if (prepared) prepared->make_whole();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
  if (context != nullptr) barrier(context->world());
  return result;
}

TEST(UnitLimits, TuplesNestedUnitsAndInputsWithoutGradientTrainAsOneProcess) {
  Unusual alone;
  const std::vector<at::Tensor> expected = train(alone, nullptr, "");
  for (const std::string backend : {"native", "gloo"}) {
    for (const std::string strategy : {"zero1", "zero2", "zero3", "zero3_keep", "random"}) {
      run_ranks(2, backend, [&](Context& context) {
        Unusual model;
        EXPECT_LT(largest_difference(train(model, &context, strategy), expected), kTolerance)
            << strategy << " " << backend;
      });
    }
  }
}

// Uses a unit's parameter beside the unit.
struct BesideImpl : torch::nn::Module {
  BesideImpl() : unit(6) {
    register_module("unit", unit);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return unit(x).matmul(unit->linear->weight); }
  Unit<Residual> unit;
};
TORCH_MODULE(Beside);

TEST(UnitLimits, AParameterUsedBesideItsUnitIsNamed) {
  run_ranks(2, "gloo", [](Context& context) {
    const auto strategy = all_strategies().make("zero3", context);
    Beside model;
    const auto prepared = strategy->prepare(model.ptr());
    prepared->begin_step({.samples = 2});
    const at::NoGradGuard no_grad;  // the last unit of a pass with gradients stays for its backward
    const std::string message = message_of([&] { model(joint_batch(2, 1).input); });
    EXPECT_NE(message.find("a parameter of unit 'unit' (unit.shift, ...) was used while"), std::string::npos)
        << message;
    EXPECT_NE(message.find("Use it inside the unit"), std::string::npos) << message;
    barrier(context.world());
  });
}

}  // namespace
}  // namespace rondo::testing
