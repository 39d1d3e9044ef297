#include "rondo/models/generate.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <set>

#include "rondo/base/error.h"

namespace rondo::generate_test {
namespace {

Gpt small_model() {
  torch::manual_seed(7);
  Gpt model(GptConfig{.vocabulary = 256, .context = 16, .layers = 1, .heads = 2, .width = 32});
  // Makes weights large enough that predictions differ clearly.
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.mul_(8);
  return model;
}

TEST(Generate, TheSeedDecidesTheText) {
  Gpt model = small_model();
  const GenerateOptions options{.tokens = 40, .temperature = 1.0, .seed = 5};
  const std::string text = generate_text(model, "ab", options);
  EXPECT_EQ(text.size(), 40U);
  EXPECT_EQ(generate_text(model, "ab", options), text);
  EXPECT_NE(generate_text(model, "ab", {.tokens = 40, .temperature = 1.0, .seed = 6}), text);
  EXPECT_EQ(generate_text(model, "", options), generate_text(model, "\n", options));
}

TEST(Generate, ZeroTemperatureAndTopOneAreGreedy) {
  Gpt model = small_model();
  const auto greedy = generate(model, {1, 2, 3}, {.tokens = 30, .temperature = 0.0});
  EXPECT_EQ(generate(model, {1, 2, 3}, {.tokens = 30, .temperature = 1.0, .top_k = 1, .seed = 9}), greedy);
  // Beyond the context only the newest tokens count; compared with the model itself.
  std::vector<std::int64_t> sequence = {1, 2, 3};
  for (const std::int64_t token : greedy) {
    const std::size_t length = std::min<std::size_t>(16, sequence.size());
    const at::Tensor window = at::tensor(
        std::vector<std::int64_t>(sequence.end() - static_cast<std::ptrdiff_t>(length), sequence.end()));
    EXPECT_EQ(model->forward(window.unsqueeze(0)).select(1, -1).argmax().item<std::int64_t>(), token);
    sequence.push_back(token);
  }
}

TEST(Generate, DrawsInProportionToTheSoftmax) {
  torch::manual_seed(8);
  Gpt model(GptConfig{.vocabulary = 4, .context = 1, .layers = 1, .heads = 1, .width = 4});
  const at::Tensor logits = model->forward(at::zeros({1, 1}, at::kLong)).flatten();
  const at::Tensor expected = (logits / 0.05).softmax(0);
  std::vector<double> counts(4);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    ++counts[static_cast<std::size_t>(
        generate(model, {0}, {.tokens = 1, .temperature = 0.05, .seed = seed}).front())];
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(counts[i] / 1000, expected[static_cast<std::int64_t>(i)].item<double>(), 0.05) << i;
  }
}

TEST(Generate, TopKLimitsTheChoice) {
  Gpt model = small_model();
  std::set<std::int64_t> seen;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    seen.insert(generate(model, {10}, {.tokens = 1, .temperature = 5.0, .top_k = 3, .seed = seed}).front());
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST(Generate, RestoresTrainingModeAndReportsEachToken) {
  Gpt model = small_model();
  std::vector<std::int64_t> reported;
  const auto result =
      generate(model, {1}, {.tokens = 3}, [&](std::int64_t token) { reported.push_back(token); });
  EXPECT_EQ(reported, result);
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(model->parameters().front().grad().defined());
  model->eval();
  generate(model, {1}, {.tokens = 1});
  EXPECT_FALSE(model->is_training());
}

TEST(Generate, RefusesWhatCannotBe) {
  Gpt model = small_model();
  EXPECT_THROW(generate(model, {}, {}), UsageError);
  EXPECT_THROW(generate(model, {256}, {}), UsageError);
  EXPECT_THROW(generate(model, {-1}, {}), UsageError);
  EXPECT_THROW(generate(model, {1}, {.temperature = -1.0}), UsageError);
  EXPECT_THROW(generate(model, {1}, {.top_k = -1}), UsageError);
  EXPECT_THROW(generate(model, {1}, {.tokens = -1}), UsageError);
  EXPECT_THROW(gpt_of(make_model("mlp")), UsageError);
}

TEST(Generate, SharesTheWeightsOfAModel) {
  Model model = make_model("gpt-tiny");
  EXPECT_EQ(gpt_of(model).get(), model.module.get());
}

}  // namespace
}  // namespace rondo::generate_test
