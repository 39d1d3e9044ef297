#include "rondo/nn/gradient_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace rondo::gradient_norm_test {
namespace {

at::Tensor with_gradient(const at::Tensor& gradient) {
  at::Tensor parameter = at::empty_like(gradient);
  parameter.mutable_grad() = gradient;
  return parameter;
}

// Returns dense parameters of several sizes, strides and dtypes, smaller and larger than a row of the sum.
std::vector<at::Tensor> dense_parameters() {
  torch::manual_seed(3);
  return {with_gradient(torch::randn({7})),
          with_gradient(torch::randn({400, 1000})),
          with_gradient(torch::randn({500, 300}).t()),
          with_gradient(torch::randn({64}, at::kDouble)),
          with_gradient(torch::randn({2, 3}).to(at::kBFloat16)),
          with_gradient(torch::randn({}))};
}

TEST(GradientNorm, ClipsAsTorchDoes) {
  for (const double max_norm : {0.5, 1e6}) {
    const std::vector<at::Tensor> ours = dense_parameters(), theirs = dense_parameters();
    const double norm = clip_gradients(ours, max_norm);
    EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_(theirs, max_norm), 1e-4 * norm);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double tolerance = ours[i].scalar_type() == at::kBFloat16 ? 1e-2 : 1e-5;
      EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad(), tolerance)) << i << ", " << max_norm;
    }
  }
}

TEST(GradientNorm, LosesNoDigitsOfMany) {
  const at::Tensor many = at::full({1 << 23}, 0.1, at::kFloat);
  const double exact = many.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(sum_of_squares({many}), exact, 1e-6 * exact);
}

TEST(GradientNorm, CountsSparseAndComplexOnes) {
  const at::Tensor rows = torch::sparse_coo_tensor(torch::tensor({{1, 1, 3}}), torch::ones({3, 2}), {5, 2});
  const std::vector<at::Tensor> parameters = {with_gradient(rows),
                                              with_gradient(torch::full({2}, c10::complex<float>(3, 4)))};
  // Row 1 is repeated: its two elements are 2.
  const double norm = std::sqrt(4 + 4 + 1 + 1 + 2 * 25);
  EXPECT_NEAR(clip_gradients(parameters, norm / 2), norm, 1e-5);
  EXPECT_NEAR(parameters[0].grad().to_dense()[1][0].item<double>(), 1, 1e-5);
  EXPECT_NEAR(at::real(parameters[1].grad())[0].item<double>(), 1.5, 1e-5);
}

TEST(GradientNorm, PassesMissingAndEmptyOnesBy) {
  const std::vector<at::Tensor> parameters = {torch::zeros({3}), with_gradient(torch::empty({0})),
                                              with_gradient(torch::full({4}, 2.0))};
  EXPECT_EQ(gradients_of(parameters).size(), 1U);
  EXPECT_NEAR(clip_gradients(parameters, 1), 4, 1e-6);
  EXPECT_EQ(clip_gradients({}, 1), 0);
}

TEST(GradientNorm, NanSpreadsAsWithTorch) {
  const std::vector<at::Tensor> parameters = {
      with_gradient(torch::full({2}, std::numeric_limits<float>::quiet_NaN())),
      with_gradient(torch::ones({2}))};
  EXPECT_TRUE(std::isnan(clip_gradients(parameters, 1)));
  EXPECT_TRUE(parameters[1].grad().isnan().all().item<bool>());
}

}  // namespace
}  // namespace rondo::gradient_norm_test
