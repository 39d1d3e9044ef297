#include "rondo/nn/activation_checkpoint.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <functional>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"
#include "tests/errors.h"

namespace rondo::activation_checkpoint_test {
namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width) {
    wide = register_module("wide", torch::nn::Linear(width, 4 * width));
    narrow = register_module("narrow", torch::nn::Linear(4 * width, width));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
  }
  at::Tensor forward(const at::Tensor& x) { return x + dropout(narrow(at::gelu(wide(x)))); }
  torch::nn::Linear wide{nullptr}, narrow{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Block);

// Nested units, one of them called twice, and a parameter outside all units.
struct StackImpl : torch::nn::Module {
  explicit StackImpl(std::int64_t width) {
    first = register_module("first", Unit<Block>(width));
    second = register_module("second", Unit<Block>(width));
    scale = register_parameter("scale", at::full({width}, 1.5));
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(second(x * scale))); }
  Unit<Block> first{nullptr}, second{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Stack);

struct OuterImpl : torch::nn::Module {
  explicit OuterImpl(std::int64_t width) {
    stack = register_module("stack", Unit<Stack>(width));
    head = register_module("head", torch::nn::Linear(width, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(stack(x)); }
  Unit<Stack> stack{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Outer);

// Tensors in every kind of argument and result, one of them without a gradient.
struct ForkImpl : torch::nn::Module {
  ForkImpl() { linear = register_module("linear", torch::nn::Linear(3, 3)); }
  std::tuple<at::Tensor, std::vector<at::Tensor>, at::Tensor> forward(const at::Tensor& a,
                                                                      std::optional<at::Tensor> b,
                                                                      std::vector<at::Tensor> c,
                                                                      double factor) {
    return {linear(a) * factor, {linear(*b), a + c[0] * c[1]}, a.detach() > 0};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Fork);

struct InPlaceImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x.relu_(); }
};
TORCH_MODULE(InPlace);

struct Result {
  std::vector<at::Tensor> values;  // loss, gradients by parameter, gradient of the input
};

// Runs one pass from the same seed; gradients start undefined.
Result pass(torch::nn::Module& model, const std::function<at::Tensor(const at::Tensor&)>& loss,
            at::IntArrayRef shape, bool input_needs_gradient = true) {
  for (at::Tensor& parameter : model.parameters()) parameter.mutable_grad().reset();
  torch::manual_seed(11);
  const at::Tensor input = at::randn(shape).set_requires_grad(input_needs_gradient);
  const at::Tensor value = loss(input);
  value.backward();
  Result result{{value.detach()}};
  for (const at::Tensor& parameter : model.parameters()) result.values.push_back(parameter.grad());
  result.values.push_back(input_needs_gradient ? input.grad() : at::zeros({1}));
  return result;
}

void expect_equal(const Result& a, const Result& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    ASSERT_EQ(a.values[i].defined(), b.values[i].defined()) << i;
    if (a.values[i].defined()) {
      EXPECT_TRUE(at::equal(a.values[i], b.values[i])) << i;
    }
  }
}

// Expects bit-identical results, including dropout masks, with and without checkpointing.
void expect_checkpointing_changes_nothing(torch::nn::Module& model,
                                          const std::function<at::Tensor(const at::Tensor&)>& loss,
                                          at::IntArrayRef shape, bool input_needs_gradient = true,
                                          std::string_view which = "all") {
  checkpoint_activations(model, "none");
  const Result expected = pass(model, loss, shape, input_needs_gradient);
  const at::Tensor next_number = at::rand({1});
  EXPECT_FALSE(checkpoint_activations(model, which).empty());
  expect_equal(pass(model, loss, shape, input_needs_gradient), expected);
  EXPECT_TRUE(at::equal(at::rand({1}), next_number)) << "the generator went on from elsewhere";
  checkpoint_activations(model, "none");
}

TEST(ActivationCheckpoint, ADeepModelWithDropoutIsBitEqual) {
  torch::nn::Sequential model(Unit<Block>(8), Unit<Block>(8), Unit<Block>(8));
  const auto loss = [&](const at::Tensor& x) { return model->forward(x).square().sum(); };
  expect_checkpointing_changes_nothing(*model, loss, {4, 8});
  expect_checkpointing_changes_nothing(*model, loss, {4, 8}, /*input_needs_gradient=*/false);
  expect_checkpointing_changes_nothing(*model, loss, {4, 8}, true, "every-2");
  expect_checkpointing_changes_nothing(*model, loss, {4, 8}, true, "1,2");
}

TEST(ActivationCheckpoint, NestedAndRepeatedUnitsAreBitEqual) {
  Outer model(6);
  const auto loss = [&](const at::Tensor& x) { return model(x).square().sum(); };
  for (const char* which :
       {"all", "stack.first", "stack.first,stack.second", "stack,stack.first,stack.second"}) {
    SCOPED_TRACE(which);
    expect_checkpointing_changes_nothing(*model, loss, {5, 6}, true, which);
    expect_checkpointing_changes_nothing(*model, loss, {5, 6}, false, which);
  }
}

TEST(ActivationCheckpoint, TuplesVectorsOptionalsAndPlainValuesGoThrough) {
  Unit<Fork> fork;
  const at::Tensor other = torch::ones({3}, torch::requires_grad());
  const auto loss = [&](const at::Tensor& x) {
    other.mutable_grad().reset();
    const auto [first, rest, mask] = fork->forward(x, other, {x * 2, other}, 0.5);
    EXPECT_FALSE(mask.requires_grad());
    return first.sum() + rest[0].square().sum() + (rest[1] * mask).sum();
  };
  expect_checkpointing_changes_nothing(*fork, loss, {2, 3});
  EXPECT_TRUE(other.grad().defined());
}

TEST(ActivationCheckpoint, OutputUnusedByTheLossIsLeftOut) {
  Unit<Fork> fork;
  const auto loss = [&](const at::Tensor& x) { return std::get<0>(fork->forward(x, x, {x, x}, 1.0)).sum(); };
  expect_checkpointing_changes_nothing(*fork, loss, {2, 3});
}

TEST(ActivationCheckpoint, RunningAveragesMoveOnce) {
  torch::nn::Sequential model(Unit<torch::nn::BatchNorm1d>(4), Unit<torch::nn::BatchNorm1d>(4));
  torch::manual_seed(1);
  const at::Tensor input = torch::randn({8, 4}, torch::requires_grad());
  const auto averages_after = [&](std::string_view which) {
    checkpoint_activations(*model, which);
    for (at::Tensor& buffer : model->buffers()) buffer.zero_();
    model->forward(input).square().sum().backward();
    std::vector<at::Tensor> buffers;
    for (const at::Tensor& buffer : model->buffers()) buffers.push_back(buffer.clone());
    return buffers;
  };
  const std::vector<at::Tensor> expected = averages_after("none");
  const std::vector<at::Tensor> found = averages_after("all");
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
}

TEST(ActivationCheckpoint, AutocastIsAsInForward) {
  torch::nn::Sequential model(Unit<Block>(8), Unit<Block>(8));
  const auto loss = [&](const at::Tensor& x) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
    const at::Tensor result = model->forward(x).to(at::kFloat).square().sum();
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return result;
  };
  expect_checkpointing_changes_nothing(*model, loss, {4, 8});
}

TEST(ActivationCheckpoint, FunctionIsBitEqualAndSavesNothing) {
  torch::nn::Linear captured(3, 3);
  const auto twice_used = torch::ones({3}, torch::requires_grad());
  const at::Tensor outer = twice_used * 2;  // part of the outer graph
  int calls = 0;
  const std::function<at::Tensor(const at::Tensor&)> function = [&](const at::Tensor& x) {
    ++calls;
    return at::dropout(captured(x).tanh() * outer, 0.5, /*train=*/true) + outer;
  };
  const at::Tensor input = torch::ones({2, 3}, torch::requires_grad());
  torch::manual_seed(5);
  function(input).sum().backward({}, /*retain_graph=*/true);
  const at::Tensor expected = input.grad().clone();
  const at::Tensor expected_outer = twice_used.grad().clone();
  input.mutable_grad().reset();
  twice_used.mutable_grad().reset();
  torch::manual_seed(5);
  calls = 0;
  const at::Tensor loss = checkpoint(function, input).sum();
  EXPECT_EQ(calls, 1);
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(at::equal(input.grad(), expected));
  EXPECT_TRUE(at::equal(twice_used.grad(), expected_outer));
}

TEST(ActivationCheckpoint, IntermediateResultsDieWithForward) {
  c10::weak_intrusive_ptr<at::TensorImpl> inside{c10::intrusive_ptr<at::TensorImpl>()};
  const std::function<at::Tensor(const at::Tensor&)> function = [&](const at::Tensor& x) {
    const at::Tensor middle = x.exp();
    if (!recomputing()) inside = c10::weak_intrusive_ptr<at::TensorImpl>(middle.getIntrusivePtr());
    return middle.sin();
  };
  const at::Tensor input = torch::ones({2, 3}, torch::requires_grad());
  const at::Tensor output = checkpoint(function, input);
  EXPECT_TRUE(inside.expired());
  output.sum().backward();
  EXPECT_TRUE(input.grad().defined());
}

TEST(ActivationCheckpoint, ObserversSeeTheRecomputationBetweenTheirBackwardMoments) {
  struct Recorder final : UnitObserver {
    explicit Recorder(std::vector<std::string>& into) : events(into) {}
    void note(const char* what, UnitState& unit) {
      events.push_back(std::string(what) + " " + unit.name() + (recomputing() ? " again" : ""));
    }
    void pre_forward(UnitState& unit) override { note("forward", unit); }
    void post_forward(UnitState& unit) override { note("end forward", unit); }
    void pre_backward(UnitState& unit) override { note("backward", unit); }
    void post_backward(UnitState& unit) override { note("end backward", unit); }
    void pre_recompute(UnitState& unit) override { note("recompute", unit); }
    void post_recompute(UnitState& unit) override { note("end recompute", unit); }
    std::vector<std::string>& events;
  };
  Outer model(4);
  checkpoint_activations(*model, "stack");
  std::vector<std::string> events;
  const auto recorder = std::make_shared<Recorder>(events);
  for (UnitState* unit : units_of(*model)) unit->attach(recorder);
  model(torch::ones({2, 4}, torch::requires_grad())).sum().backward();
  const std::vector<std::string> expected = {"forward stack",
                                             "forward stack.second",
                                             "end forward stack.second",
                                             "forward stack.first",
                                             "end forward stack.first",
                                             "forward stack.second",
                                             "end forward stack.second",
                                             "end forward stack",
                                             "backward stack",
                                             "recompute stack again",
                                             "forward stack.second again",
                                             "end forward stack.second again",
                                             "forward stack.first again",
                                             "end forward stack.first again",
                                             "forward stack.second again",
                                             "end forward stack.second again",
                                             "end recompute stack again",
                                             "backward stack.second again",
                                             "end backward stack.second again",
                                             "backward stack.first again",
                                             "end backward stack.first again",
                                             "backward stack.second again",
                                             "end backward stack.second again",
                                             "end backward stack"};
  EXPECT_EQ(events, expected);
}

// The thread stands for the autograd thread of a device.
TEST(ActivationCheckpoint, BackwardOnAnotherThreadDropsWhatForwardDropped) {
  SampleDropout dropout(0.5);
  const at::Tensor input = torch::ones({4, 32}, torch::requires_grad());
  const std::function<at::Tensor(const at::Tensor&)> function = [&](const at::Tensor& x) {
    return dropout->forward(x) * x;
  };
  at::Tensor output;
  {
    const SampleScope scope({.seed = 3, .step = 5, .indices = {7, 2, 9, 4}});
    output = checkpoint(function, input);
  }
  std::thread([&] { output.sum().backward(); }).join();
  // Gradient of a square times a factor of 0 or 2, at 1.
  EXPECT_TRUE(torch::allclose(input.grad(), 2 * output.detach()));
}

TEST(ActivationCheckpoint, HooksOnParametersRunOnce) {
  torch::nn::Sequential model{Unit<torch::nn::Linear>(3, 3)};
  at::Tensor weight = model->parameters()[0];
  weight.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  const auto loss = [&](const at::Tensor& x) { return model->forward(x).sum(); };
  expect_checkpointing_changes_nothing(*model, loss, {2, 3});
}

TEST(ActivationCheckpoint, InPlaceMisuseIsAnError) {
  torch::nn::Sequential model{Unit<InPlace>()};
  checkpoint_activations(*model, "all");
  const at::Tensor leaf = torch::ones({2}, torch::requires_grad());
  EXPECT_NE(
      testing::message_of<UsageError>([&] { model->forward(leaf * 1); }).find("unit '0' changes its input 0"),
      std::string::npos);

  const at::Tensor input = leaf * 1;
  const at::Tensor output = checkpoint([](const at::Tensor& x) { return x.exp(); }, input);
  {
    const at::NoGradGuard no_grad;
    input.add_(1);
  }
  testing::expect_facts(testing::message_of<UsageError>([&] { output.sum().backward(); }),
                        {"input 0", "[2]", "clone"});
}

TEST(ActivationCheckpoint, WhatCannotBeRepeatedIsAnError) {
  const at::Tensor input = torch::ones({2}, torch::requires_grad());
  const at::Tensor output = checkpoint([](const at::Tensor& x) { return x.exp(); }, input).sum();
  output.backward();
  testing::expect_facts(testing::message_of<UsageError>([&] { output.backward(); }), {"second", "backward"});

  const at::Tensor other = torch::ones({2}, torch::requires_grad());
  const at::Tensor fickle =
      checkpoint([&](const at::Tensor& x) { return recomputing() ? x * other : x * 2; }, input).sum();
  testing::expect_facts(testing::message_of<UsageError>([&] { fickle.backward(); }), {"parameter"});

  const at::Tensor once = checkpoint([](const at::Tensor& x) { return x.exp(); }, input).sum();
  testing::expect_facts(
      testing::message_of<UsageError>([&] { once.backward({}, true, /*create_graph=*/true); }),
      {"gradients of gradients"});
}

TEST(ActivationCheckpoint, WithoutGradientsItIsAPlainCall) {
  torch::nn::Sequential model{Unit<Block>(4)};
  checkpoint_activations(*model, "all");
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(model->forward(at::ones({1, 4})).requires_grad());
  EXPECT_FALSE(checkpoint([](const at::Tensor& x) { return x + 1; }, at::ones({1})).requires_grad());
}

TEST(CheckpointChoice, NamesIntervalsAndAll) {
  Outer model(4);
  using Names = std::vector<std::string>;
  EXPECT_EQ(checkpoint_activations(*model, "all"), Names{"stack"}) << "inner units go with it";
  EXPECT_FALSE(model->stack->first->unit_state().checkpointed());
  EXPECT_EQ(checkpoint_activations(*model, "stack.second, stack.first"),
            (Names{"stack.first", "stack.second"}));
  EXPECT_FALSE(model->stack->unit_state().checkpointed()) << "what is not chosen is switched off";
  torch::nn::Sequential flat(Unit<Block>(2), Unit<Block>(2), Unit<Block>(2));
  EXPECT_EQ(checkpoint_activations(*flat, "every-2"), (Names{"0", "2"}));
  EXPECT_EQ(checkpoint_activations(*flat, "every-1").size(), 3U);
  EXPECT_TRUE(checkpoint_activations(*flat, "none").empty());
  EXPECT_NE(
      testing::message_of<UsageError>([&] { checkpoint_activations(*flat, "every-0"); }).find("at least 1"),
      std::string::npos);
  EXPECT_NE(testing::message_of<UsageError>([&] {
              checkpoint_activations(*flat, "3");
            }).find("its units are 0, 1, 2"),
            std::string::npos);
  torch::nn::Linear plain(1, 1);
  EXPECT_NE(testing::message_of<UsageError>([&] { checkpoint_activations(*plain, "all"); }).find("no units"),
            std::string::npos);
  EXPECT_TRUE(checkpoint_activations(*plain, "none").empty());
}

}  // namespace
}  // namespace rondo::activation_checkpoint_test
