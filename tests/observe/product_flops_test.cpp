#include "rondo/observe/product_flops.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <barrier>
#include <thread>

#include "rondo/base/replica.h"

namespace rondo::product_flops_test {
namespace {

TEST(ProductFlops, CountsForwardPassesAlone) {
  torch::nn::Linear layer(6, 5);
  const at::Tensor input = torch::ones({3, 6}, at::requires_grad());
  ProductFlops counter;
  layer(input).sum().backward();
  EXPECT_EQ(counter.count(), 2 * 3 * 6 * 5);
  const torch::NoGradGuard no_gradients;
  layer(input);
  EXPECT_EQ(counter.count(), 2 * 3 * 6 * 5);
}

TEST(ProductFlops, SeveralAtATimeCountEachForItself) {
  torch::nn::Linear layer(6, 5);
  const at::Tensor input = torch::ones({3, 6});
  const ProductFlops first;
  layer(input);
  {
    const ProductFlops second;
    layer(input);
    EXPECT_EQ(second.count(), 2 * 3 * 6 * 5);
  }
  layer(input);
  EXPECT_EQ(first.count(), 3 * 2 * 3 * 6 * 5);
}

TEST(ProductFlops, CountsForTheRankOfItsThread) {
  std::barrier both(2);
  const auto rank = [&](int layers) {
    const Replica replica;
    replica.enter();
    const ProductFlops counter;
    both.arrive_and_wait();
    torch::nn::Linear layer(6, 5);
    const auto compute = [&] {
      for (int i = 0; i < layers; ++i) layer(torch::ones({3, 6}));
    };
    compute();
    // A second replica of this rank.
    std::thread([&, number = replica.number()] {
      const Replica second(number);
      second.enter();
      compute();
    }).join();
    both.arrive_and_wait();
    EXPECT_EQ(counter.count(), 2 * layers * 2 * 3 * 6 * 5);
  };
  std::thread other(rank, 7);
  rank(2);
  other.join();
}

TEST(ProductFlops, KnowsProductsConvolutionsAndAttention) {
  ProductFlops counter;
  double before = 0;
  const auto flops = [&](const at::Tensor&) {
    return counter.count() - std::exchange(before, counter.count());
  };
  const auto ones = [](std::vector<std::int64_t> sizes) { return torch::ones(sizes, at::requires_grad()); };
  EXPECT_EQ(flops(ones({2, 3, 4}).bmm(ones({2, 4, 5}))), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops(ones({2, 3, 4}).matmul(ones({4, 5}))), 2 * 2 * 3 * 4 * 5);
  // Eight places of 3 x 3 windows of two channels a group: 9 x 9 with stride 2 and padding 1 gives 5 x 5.
  EXPECT_EQ(flops(at::conv2d(ones({2, 4, 9, 9}), ones({6, 2, 3, 3}), {}, 2, 1, 1, 2)),
            2.0 * 2 * 25 * 6 * 2 * 9);
  EXPECT_EQ(
      flops(at::scaled_dot_product_attention(ones({2, 4, 8, 16}), ones({2, 4, 8, 16}), ones({2, 4, 8, 16}))),
      2.0 * 2 * (2 * 4 * 8 * 8 * 16));
  EXPECT_EQ(flops(ones({7, 7}) + ones({7, 7})), 0);
}

}  // namespace
}  // namespace rondo::product_flops_test
