#include "rondo/nn/sample_dropout.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <cmath>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/random.h"

namespace rondo::sample_dropout_test {
namespace {

SampleInfo info_of(std::vector<std::int64_t> indices, std::uint64_t step = 3) {
  return {.seed = 11, .step = step, .indices = std::move(indices)};
}

at::Tensor drop(SampleDropout& dropout, const at::Tensor& input, SampleInfo info) {
  const SampleScope scope(std::move(info));
  return dropout->forward(input);
}

TEST(DropoutMask, IsPhiloxOfTheDocumentedCounters) {
  const DropoutKey key{.seed = 0x1234567890ULL, .step = 77, .module = 0xFEDCBA9876543210ULL};
  const std::int64_t sample = 0x100000002LL;
  std::vector<float> values(300);
  fill_dropout_mask(key, sample, 0.25, values);
  const auto mixed = philox({77, 0, 0x76543210U, 0xFEDCBA98U}, {0x34567890U, 0x12U});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t group = i / 128, word = i % 128 / 32, lane = i % 32;
    const auto words = philox({static_cast<std::uint32_t>(group * 32 + lane), 0, 2, 1}, {mixed[0], mixed[1]});
    EXPECT_EQ(values[i], words[word] < 0x40000000U ? 0.0F : static_cast<float>(1 / 0.75)) << i;
  }
}

TEST(DropoutMask, DropsTheGivenPartAndKeepsTheMean) {
  for (const double probability : {0.0, 1e-3, 0.1, 0.5, 0.9}) {
    std::vector<float> values(200000);
    fill_dropout_mask({.seed = 5}, 1, probability, values);
    double dropped = 0, sum = 0;
    for (const float value : values) {
      dropped += value == 0;
      sum += value;
    }
    const auto count = static_cast<double>(values.size());
    const double deviation = std::sqrt(probability * (1 - probability) / count);
    EXPECT_NEAR(dropped / count, probability, 5 * deviation);
    EXPECT_NEAR(sum / count, 1, 5 * deviation / (1 - probability) + 1e-5);
  }
}

TEST(DropoutMask, StreamsAreUnlikeEachOther) {
  const std::array<std::pair<DropoutKey, std::int64_t>, 5> streams = {
      {{{1, 2, 3}, 4}, {{9, 2, 3}, 4}, {{1, 9, 3}, 4}, {{1, 2, 9}, 4}, {{1, 2, 3}, 9}}};
  std::vector<at::Tensor> masks;
  for (const auto& [key, sample] : streams) {
    std::vector<float> values(20000);
    fill_dropout_mask(key, sample, 0.5, values);
    masks.push_back(torch::tensor(values) - 1);
  }
  for (std::size_t a = 0; a < masks.size(); ++a) {
    for (std::size_t b = a + 1; b < masks.size(); ++b) {
      EXPECT_LT(std::abs((masks[a] * masks[b]).mean().item<double>()), 5 / std::sqrt(20000.0)) << a << b;
    }
  }
}

TEST(SampleDropout, DoesNotDependOnHowSamplesAreSpread) {
  SampleDropout dropout(0.3);
  dropout->set_name("layer.dropout");
  const at::Tensor input = at::randn({6, 5, 40});
  const std::vector<std::int64_t> order = {42, 7, 1000000007, 0, 13, 8};
  const at::Tensor whole = drop(dropout, input, info_of(order));
  at::Tensor parts = at::zeros_like(input);
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{4, 0}, {1, 3, 5}, {2}, {}}) {
    std::vector<std::int64_t> indices;
    for (const std::int64_t row : rows) indices.push_back(order[static_cast<std::size_t>(row)]);
    const at::Tensor picked = torch::tensor(rows, at::kLong);
    parts.index_copy_(0, picked, drop(dropout, input.index_select(0, picked), info_of(indices)));
  }
  EXPECT_TRUE(at::equal(whole, parts));
  EXPECT_FALSE(at::equal(whole, drop(dropout, input, info_of(order, /*step=*/4))));
  SampleDropout other(0.3);
  other->set_name("another.dropout");
  EXPECT_FALSE(at::equal(whole, drop(other, input, info_of(order))));
}

TEST(SampleDropout, GradientsPassWhereValuesDo) {
  SampleDropout dropout(0.5);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor input = at::ones({4, 64}, type).requires_grad_();
    const at::Tensor output = drop(dropout, input, info_of({3, 1, 2, 0}));
    EXPECT_EQ(output.scalar_type(), type);
    output.sum().backward();
    EXPECT_TRUE(at::equal(input.grad(), output.detach()));
  }
}

TEST(SampleDropout, RepeatedPassDropsSameValuesOnAnyThread) {
  SampleDropout dropout(0.5);
  const at::Tensor input = at::ones({2, 100});
  const SampleScope scope(info_of({5, 6}));
  const at::Tensor first = dropout->forward(input);
  at::Tensor second;
  std::thread([&, info = SampleScope::current()] {
    EXPECT_EQ(SampleScope::current(), nullptr);
    const SampleScope again(info);
    second = dropout->forward(input);
  }).join();
  EXPECT_TRUE(at::equal(first, second));
}

TEST(SampleDropout, ScopesNest) {
  const SampleScope outer(info_of({1}));
  {
    const SampleScope inner(info_of({2, 3}));
    EXPECT_EQ(SampleScope::current()->indices.size(), 2U);
  }
  EXPECT_EQ(SampleScope::current()->indices.size(), 1U);
}

TEST(SampleDropout, DropsInTrainingOnlyAndWithoutScope) {
  SampleDropout dropout(0.5);
  const at::Tensor input = at::ones({2, 100});
  torch::manual_seed(1);
  EXPECT_FALSE(at::equal(dropout->forward(input), dropout->forward(input)));
  dropout->eval();
  EXPECT_TRUE(at::equal(dropout->forward(input), input));
  EXPECT_TRUE(at::equal(SampleDropout(0.0)->forward(input), input));
}

TEST(SampleDropout, IsNamedByItsPath) {
  torch::nn::Sequential model(torch::nn::Linear(4, 40), SampleDropout(0.5), SampleDropout(0.5));
  const at::Tensor input = at::ones({1, 200});
  const SampleScope scope(info_of({1}));
  const auto difference = [&] {
    return (model->at<SampleDropoutImpl>(1).forward(input) - model->at<SampleDropoutImpl>(2).forward(input))
        .abs()
        .sum()
        .item<double>();
  };
  EXPECT_EQ(difference(), 0);
  name_sample_dropouts(*model);
  EXPECT_GT(difference(), 0);
}

TEST(SampleDropout, RefusesWhatCannotBe) {
  EXPECT_THROW(SampleDropout(1.0), UsageError);
  EXPECT_THROW(SampleDropout(-0.1), UsageError);
  SampleDropout dropout(0.5);
  dropout->set_name("head.dropout");
  try {
    drop(dropout, at::ones({3, 2}), info_of({1, 2}));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("head.dropout"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[3, 2]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rondo::sample_dropout_test
