#include "rondo/parallel/pipeline/stage.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include <utility>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/memory/tracker.h"
#include "tests/parallel/ranks.h"

namespace rondo::split_backward_test {
namespace {

using ::rondo::testing::random_tensor;

at::Tensor leaf(at::IntArrayRef shape, std::uint64_t seed) {
  return random_tensor(shape, seed).requires_grad_();
}

// Two layers, a norm, a parameter that is added, and an unused parameter.
struct Net {
  at::Tensor first = leaf({5, 4}, 1), bias = leaf({5}, 2), scale = leaf({5}, 3), second = leaf({3, 5}, 4),
             unused = leaf({2}, 5);
  Tensors parameters() const { return {first, bias, scale, second, unused}; }
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor hidden = torch::tanh(at::linear(x, first, bias));
    return at::linear(at::layer_norm(hidden, {5}, scale, bias * 2), second) + x.narrow(1, 0, 3);
  }
};

void expect_same(const Tensors& result, const Tensors& expected) {
  ASSERT_EQ(result.size(), expected.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    ASSERT_EQ(result[i].defined(), expected[i].defined()) << i;
    if (!result[i].defined()) continue;
    EXPECT_TRUE(at::equal(result[i], expected[i])) << i;
  }
}

// Moves the parameters' gradients to the end of those of the inputs.
Tensors with_gradients_of(const Tensors& parameters, Tensors of_inputs) {
  for (const at::Tensor& parameter : parameters)
    of_inputs.push_back(std::exchange(parameter.mutable_grad(), {}));
  return of_inputs;
}

// Returns the gradients of the inputs, then of the parameters.
Tensors at_once(const std::function<at::Tensor(const at::Tensor&)>& net, const at::Tensor& x,
                const Tensors& parameters, const at::Tensor& gradient) {
  return with_gradients_of(parameters, SplitBackward({net(x)}, {x}, parameters).gradients({gradient}));
}

Tensors in_parts(const std::function<at::Tensor(const at::Tensor&)>& net, const at::Tensor& x,
                 const Tensors& parameters, const at::Tensor& gradient) {
  SplitBackward split({net(x)}, {x}, parameters);
  Tensors result = split.input_gradients({gradient});
  split.add_parameter_gradients();
  return with_gradients_of(parameters, std::move(result));
}

TEST(SplitBackward, GivesTheSameInTwoParts) {
  const Net net;
  const at::Tensor gradient = random_tensor({6, 3}, 9);
  const at::Tensor x = leaf({6, 4}, 8);
  // `bias` is used twice, so the second part runs over the whole graph.
  expect_same(in_parts(net, x, net.parameters(), gradient), at_once(net, x, net.parameters(), gradient));
}

TEST(SplitBackward, ComputesNothingTwice) {
  const at::Tensor weight = leaf({4, 4}, 1), bias = leaf({4}, 2), x = leaf({6, 4}, 3);
  int passes = 0;
  const auto net = [&](const at::Tensor& input) {
    at::Tensor hidden = torch::tanh(at::linear(input, weight, bias));
    hidden.register_hook([&](const at::Tensor&) { ++passes; });
    return torch::tanh(hidden);
  };
  const at::Tensor gradient = random_tensor({6, 4}, 9);
  const Tensors expected = at_once(net, x, {weight, bias}, gradient);
  passes = 0;
  expect_same(in_parts(net, x, {weight, bias}, gradient), expected);
  EXPECT_EQ(passes, 1);
}

TEST(SplitBackward, AddsToTheGradientsThatAreThere) {
  const at::Tensor weight = leaf({4, 4}, 1), x = leaf({6, 4}, 3), gradient = random_tensor({6, 4}, 9);
  const auto net = [&](const at::Tensor& input) { return torch::tanh(at::linear(input, weight)); };
  const Tensors once = at_once(net, x, {weight}, gradient);
  for (const bool whole : {true, false}) {
    for (int i = 0; i < 2; ++i) {
      SplitBackward backward({net(x)}, {x}, {weight});
      if (whole) {
        backward.gradients({gradient});
      } else {
        backward.input_gradients({gradient});
        backward.add_parameter_gradients();
      }
      EXPECT_FALSE(x.grad().defined()) << "handed out";
    }
    expect_same(with_gradients_of({weight}, {}), {once[1] + once[1]});
  }
}

// Between the parts only the tensors for the second one are kept: inputs of products, and the gradients that
// arrived there.
TEST(SplitBackward, FreesWhatOnlyTheInputsNeeded) {
  track_cpu_allocations();
  const at::Tensor weight = leaf({64, 64}, 1), x = leaf({64, 64}, 3);
  const std::uint64_t bytes = x.nbytes();
  MemoryTracker& memory = replica_memory_tracker();
  const std::uint64_t before = memory.total();
  // The product saves x; each tanh saves its result.
  SplitBackward split({torch::tanh(torch::tanh(torch::tanh(at::linear(x, weight))))}, {x}, {weight});
  EXPECT_EQ(memory.total() - before, 3 * bytes);
  split.input_gradients({at::Tensor()});
  EXPECT_EQ(memory.total() - before, bytes) << "what arrived at the product";
  split.add_parameter_gradients();
  EXPECT_EQ(memory.total() - before, bytes) << "the gradient of the weight";
  weight.mutable_grad().reset();
}

TEST(SplitBackward, HoldsOneGradientBesideTheSums) {
  track_cpu_allocations();
  Tensors weights;
  for (std::uint64_t layer = 0; layer < 4; ++layer) weights.push_back(leaf({128, 128}, layer + 1));
  const at::Tensor x = leaf({1, 128}, 9);
  MemoryTracker& memory = replica_memory_tracker();
  for (const bool whole : {true, false}) {
    std::uint64_t before = 0;
    for (int i = 0; i < 2; ++i) {  // the sums exist when the second pass begins
      at::Tensor values = x;
      for (const at::Tensor& weight : weights) values = at::linear(values, weight);
      SplitBackward backward({values}, {x}, weights);
      before = memory.total();
      memory.reset_peak();
      if (whole) {
        backward.gradients({at::Tensor()});
      } else {
        backward.input_gradients({at::Tensor()});
        backward.add_parameter_gradients();
      }
    }
    EXPECT_LT(memory.peak_total() - before, 2 * weights.front().nbytes()) << whole;
    with_gradients_of(weights, {});
  }
}

TEST(SplitBackward, OfAFirstStageIsAllForParameters) {
  const Net net;
  const at::Tensor x = random_tensor({6, 4}, 8);
  const at::Tensor gradient = random_tensor({6, 3}, 9);
  const Tensors result = in_parts(net, x, net.parameters(), gradient);
  EXPECT_FALSE(result.front().defined());
  expect_same(result, at_once(net, x, net.parameters(), gradient));
}

}  // namespace
}  // namespace rondo::split_backward_test
