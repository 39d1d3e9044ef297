// Compares gelu_tanh with at::gelu in float64.
#include "rondo/nn/gelu.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <vector>

#include "tests/parallel/ranks.h"

namespace rondo::gelu_test {
namespace {

using testing::random_tensor;

TEST(GeluTanh, EqualsLibtorchsWithItsGradient) {
  // The last shape has several chunks, of which the last is not full.
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{}, {0}, {1}, {3, 5, 7}, {3, 1 << 16}}) {
    const at::Tensor input = (random_tensor(shape, 1) * 4).requires_grad_(true);
    const at::Tensor factor = random_tensor(shape, 2);
    const at::Tensor expected_input = input.detach().to(at::kDouble).requires_grad_(true);
    const at::Tensor output = nn::gelu_tanh(input), expected = at::gelu(expected_input, "tanh");
    (output * factor).sum().backward();
    (expected * factor).sum().backward();
    EXPECT_EQ(output.sizes(), input.sizes());
    EXPECT_TRUE(at::allclose(output.to(at::kDouble), expected, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(input.grad().to(at::kDouble), expected_input.grad(), 1e-5, 1e-5));
  }
}

TEST(GeluTanh, TakesLargeAndStridedInputs) {
  const at::Tensor large = at::tensor({-INFINITY, -1e30F, -40.F, 40.F, 1e30F, INFINITY, NAN});
  const at::Tensor output = nn::gelu_tanh(large), expected = at::gelu(large, "tanh");
  EXPECT_TRUE(at::allclose(output.slice(0, 1), expected.slice(0, 1), 1e-6, 1e-6, /*equal_nan=*/true))
      << output;
  const at::Tensor transposed = random_tensor({6, 4}, 3).t();
  EXPECT_TRUE(at::allclose(nn::gelu_tanh(transposed), at::gelu(transposed, "tanh"), 1e-5, 1e-6));
}

TEST(GeluTanh, HasASecondDerivative) {
  const at::Tensor input = random_tensor({8}, 4).requires_grad_(true);
  const auto second = [&](const at::Tensor& output) {
    const at::Tensor first = torch::autograd::grad({output.sum()}, {input}, {}, {}, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.square().sum()}, {input})[0];
  };
  EXPECT_TRUE(at::allclose(second(nn::gelu_tanh(input)), second(at::gelu(input, "tanh")), 1e-5, 1e-6));
}

TEST(GeluTanh, LeavesOtherTypesToLibtorch) {
  const at::Tensor input = random_tensor({16}, 5, at::kBFloat16);
  EXPECT_TRUE(at::equal(nn::gelu_tanh(input), at::gelu(input, "tanh")));
}

}  // namespace
}  // namespace rondo::gelu_test
