#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/memory/tracker.h"
#include "rondo/nn/unit_state.h"
#include "rondo/nn/wrap.h"
#include "tests/parallel/sharded/layers.h"

// Supported kinds of units besides one tensor in and one out, and their limits (docs/guides/units.md, Rules).
namespace rondo::testing::unit_limits_test {
namespace {

// Returns several tensors in a tuple; one may stay unused.
struct SplitImpl : torch::nn::Module {
  SplitImpl() : linear(6, 8) { register_module("linear", linear); }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x) {
    const at::Tensor y = linear(x);
    return {y.narrow(1, 0, 4), {y.narrow(1, 4, 2), y.narrow(1, 6, 2)}};
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Split);

// A unit that contains a unit and takes two tensors.
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

// Its first unit gets data without requires_grad. There is no root.
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
    ShardedOptions options;
    options.strategy_seed = 3;
    strategy = testing::make_strategy(strategy_name, *context, options);
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
  if (prepared) prepared->unshard();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
  if (context != nullptr) barrier(context->world());
  return result;
}

TEST(UnitLimits, TuplesAndNestedUnitsEqualOneProcess) {
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

// Uses a unit's parameter outside the unit.
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
    const at::NoGradGuard no_grad;  // with gradients, the last unit of a pass stays gathered for its backward
    const std::string message = message_of([&] { model(joint_batch(2, 1).input); });
    EXPECT_NE(message.find("a parameter of unit 'unit' (unit.shift, ...) was used while"), std::string::npos)
        << message;
    EXPECT_NE(message.find("Use it inside the unit"), std::string::npos) << message;
    barrier(context.world());
  });
}

// Uses a unit's parameter before the unit, so that in backward its gradient comes after the unit's.
struct BeforeImpl : torch::nn::Module {
  BeforeImpl() : unit(6) {
    register_module("unit", unit);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return unit(x.matmul(unit->linear->weight)); }
  Unit<Residual> unit;
};
TORCH_MODULE(Before);

TEST(UnitLimits, NamesGradientAfterItsUnitsReduction) {
  for (const std::string backend : {"native", "gloo"}) {
    for (const bool find_unused : {false, true}) {
      run_ranks(2, backend, [&](Context& context) {
        ShardedOptions options;
        options.find_unused_parameters = find_unused;
        const auto strategy = all_strategies().make("zero1", context, options);
        Before model;
        const auto prepared = strategy->prepare(model.ptr());
        prepared->begin_step({.samples = 2});
        const at::Tensor loss = model(joint_batch(2, 1).input).sum();
        const std::string message = message_of([&] { loss.backward(); });
        expect_facts(message, {"unit.linear.weight", "unit 'unit'"});
        barrier(context.world());
      });
    }
  }
}

TEST(UnitLimits, NamesUnitLargerThanTheMemoryLimit) {
  struct LimitScope {
    explicit LimitScope(Bytes limit) { replica_memory_tracker().set_limit(limit); }
    ~LimitScope() { replica_memory_tracker().set_limit({}); }
  };
  run_ranks(1, "native", [](Context& context) {
    const auto strategy = all_strategies().make("zero3", context);
    Layers model(16);
    const LimitScope limit(KiB(2));
    const std::string message = message_of([&] { strategy->prepare(model.ptr()); });
    EXPECT_NE(message.find("unit 'layer0' has 2.2 KiB of parameters"), std::string::npos) << message;
    EXPECT_NE(
        message.find("the limit of this rank's memory is 2.0 KiB. Declare its layers as smaller rondo::Unit"),
        std::string::npos)
        << message;
  });
}

// Returns layers that are not units.
torch::nn::Sequential plain_layers() {
  torch::nn::Sequential model(torch::nn::Linear(6, 16), torch::nn::Tanh(), Residual(16),
                              torch::nn::Linear(16, 4));
  model->to(at::kDouble);
  fill_parameters(*model, 5);
  return model;
}

template <class BeginStep, class EndStep>
std::vector<at::Tensor> train_plain(torch::nn::Sequential& model, const Context* context,
                                    const BeginStep& begin, const EndStep& end) {
  for (int step = 0; step < 3; ++step) {
    Batch batch = joint_batch(8, static_cast<std::uint64_t>(step));
    if (context != nullptr) batch = my_rows(batch, context->world());
    begin();
    mean_loss(model->forward(batch.input), batch).backward();
    end();
  }
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
  return result;
}

TEST(UnitLimits, LayersWrappedByRuleEqualOneProcess) {
  torch::nn::Sequential alone = plain_layers();
  const auto optimizer_alone = make_adamw(*alone);
  const auto expected = train_plain(
      alone, nullptr, [&] { optimizer_alone->zero_grad(); }, [&] { optimizer_alone->step(); });
  struct Rule {
    std::string name;
    WrapRule rule;
    int units;
  };
  const std::vector<Rule> rules = {{"all", wrap_all(), 3},
                                   {"one type", wrap_types<ResidualImpl>(), 1},
                                   {"types", wrap_types<torch::nn::LinearImpl, ResidualImpl>(), 3},
                                   {"size", wrap_from(KiB(2)), 1}};
  for (const Rule& rule : rules) {
    for (const std::string backend : {"native", "gloo"}) {
      run_ranks(2, backend, [&](Context& context) {
        torch::nn::Sequential model = plain_layers();
        const auto names = model->named_parameters().keys();
        EXPECT_EQ(wrap_units(*model, rule.rule), rule.units) << rule.name;
        EXPECT_EQ(model->named_parameters().keys(), names);
        const auto strategy = all_strategies().make("zero3", context);
        const auto prepared = strategy->prepare(model.ptr());
        const auto optimizer = make_adamw(prepared->module());
        train_plain(
            model, &context,
            [&] {
              optimizer->zero_grad();
              prepared->begin_step({.samples = 4, .gradients_are_read = false});
            },
            [&] {
              prepared->finish_backward();
              prepared->step(*optimizer);
              prepared->unshard();
            });
        EXPECT_LT(largest_difference(model->parameters(), expected), kTolerance)
            << rule.name << " " << backend;
        barrier(context.world());
      });
    }
  }
}

TEST(UnitLimits, ModelWithoutUnitsIsOneUnit) {
  ::testing::internal::CaptureStderr();
  run_ranks(2, "gloo", [](Context& context) {
    const auto strategy = all_strategies().make("zero3", context);
    TwoLayers model;
    const auto prepared = strategy->prepare(model.ptr());
    const auto optimizer = make_adamw(prepared->module());
    for (int step = 0; step < 2; ++step) {
      prepared->begin_step({.samples = 2, .gradients_are_read = true});
      const Batch batch = my_rows(joint_batch(4, 1), context.world());
      mean_loss(model(batch.input), batch).backward();
      prepared->finish_backward();
      prepared->step(*optimizer);
      // All parameters are in one piece.
      for (const TraceSpan& span : prepared->communication_spans()) EXPECT_EQ(span.unit, kRootUnit);
    }
    barrier(context.world());
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  expect_facts(log, {"rondo::Unit", "1.4 KiB", "rondo/nn.h"});
  EXPECT_EQ(log.find("1.4 KiB"), log.rfind("1.4 KiB")) << "more than once: " << log;
}

}  // namespace
}  // namespace rondo::testing::unit_limits_test
