#include "rondo/models/gpt.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <set>

#include "rondo/base/error.h"
#include "rondo/models/model.h"
#include "rondo/nn/loss.h"

namespace rondo::gpt_test {
namespace {

constexpr GptConfig kSmall{.vocabulary = 31, .context = 12, .layers = 2, .heads = 4, .width = 32};

at::Tensor tokens(std::int64_t samples, std::int64_t length, std::int64_t vocabulary) {
  return at::randint(vocabulary, {samples, length}, at::kLong);
}

// Implements the model from the paper, by parameter name and without fused operations.
at::Tensor reference_forward(const GptImpl& model, const at::Tensor& input) {
  const auto weights = model.named_parameters();
  const GptConfig& config = model.config();
  const auto weight = [&](const std::string& name) { return weights["transformer." + name]; };
  const auto affine = [&](const at::Tensor& x, const std::string& name) {
    return at::matmul(x, weight(name + ".weight").t()) + weight(name + ".bias");
  };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor centred = x - x.mean(-1, true);
    const at::Tensor variance = centred.square().mean(-1, true);
    return centred / (variance + 1e-5).sqrt() * weight(name + ".weight") + weight(name + ".bias");
  };
  const std::int64_t samples = input.size(0), length = input.size(1), size = config.width / config.heads;
  at::Tensor x = weight("wte.weight").index({input}) + weight("wpe.weight").slice(0, 0, length);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string block = "h." + std::to_string(i);
    const at::Tensor qkv = affine(norm(x, block + ".ln_1"), block + ".attn.c_attn");
    std::vector<at::Tensor> heads;
    for (std::int64_t h = 0; h < config.heads; ++h) {
      const auto part = [&](std::int64_t which) {
        return qkv.slice(2, which * config.width + h * size, which * config.width + (h + 1) * size);
      };
      const at::Tensor scores =
          at::matmul(part(0), part(1).transpose(1, 2)) / std::sqrt(static_cast<double>(size));
      const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
      heads.push_back(at::matmul(scores.masked_fill(future, -INFINITY).softmax(-1), part(2)));
    }
    x = x + affine(at::cat(heads, 2), block + ".attn.c_proj");
    const at::Tensor inside = affine(norm(x, block + ".ln_2"), block + ".mlp.c_fc");
    const at::Tensor gelu =
        0.5 * inside * (1 + at::tanh(std::sqrt(2 / M_PI) * (inside + 0.044715 * inside.pow(3))));
    x = x + affine(gelu, block + ".mlp.c_proj");
  }
  const at::Tensor head = config.tied_head ? weight("wte.weight") : weights["lm_head.weight"];
  return at::matmul(norm(x, "ln_f"), head.t()).view({samples, length, config.vocabulary});
}

TEST(Gpt, EqualsTheFunctionWrittenOutInPlainOperations) {
  for (const bool tied : {false, true}) {
    torch::manual_seed(1);
    GptConfig config = kSmall;
    config.tied_head = tied;
    Gpt model(config);
    // Initial biases and norms would hide a mistake: makes every parameter count.
    for (at::Tensor& parameter : model->parameters()) {
      const torch::NoGradGuard no_grad;
      parameter.add_(at::randn_like(parameter) * 0.1);
    }
    for (const std::int64_t length : {1, 5, 12}) {
      const at::Tensor input = tokens(3, length, config.vocabulary);
      const at::Tensor target = tokens(3, length, config.vocabulary);
      const at::Tensor expected = reference_forward(*model, input);
      const at::Tensor actual = model->forward(input);
      EXPECT_TRUE(at::allclose(actual, expected, 1e-4, 1e-5))
          << (actual - expected).abs().max().item<float>();
      const auto parameters = model->parameters();
      const auto expected_gradients =
          torch::autograd::grad({cross_entropy(expected, target).mean}, parameters, {}, {}, false, true);
      const auto gradients =
          torch::autograd::grad({cross_entropy(actual, target).mean}, parameters, {}, {}, false, true);
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_TRUE(at::allclose(gradients[i], expected_gradients[i], 1e-3, 1e-5)) << "parameter " << i;
      }
    }
  }
}

TEST(Gpt, FutureTokensDoNotChangePastLogits) {
  torch::manual_seed(2);
  Gpt model(kSmall);
  const at::Tensor input = tokens(2, 12, kSmall.vocabulary);
  for (const std::int64_t changed : {1, 6, 11}) {
    at::Tensor other = input.clone();
    other.select(1, changed).add_(1).remainder_(kSmall.vocabulary);
    const at::Tensor before = model->forward(input), after = model->forward(other);
    EXPECT_TRUE(at::equal(before.slice(1, 0, changed), after.slice(1, 0, changed))) << changed;
    EXPECT_FALSE(at::allclose(before.select(1, changed), after.select(1, changed))) << changed;
  }
}

TEST(Gpt, GradientsReachEveryParameter) {
  torch::manual_seed(3);
  for (const bool tied : {false, true}) {
    GptConfig config = kSmall;
    config.tied_head = tied;
    Gpt model(config);
    const at::Tensor input = tokens(4, config.context, config.vocabulary);
    cross_entropy(model->forward(input), input).mean.backward();
    for (const auto& parameter : model->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
      EXPECT_GT(parameter.value().grad().abs().sum().item<float>(), 0) << parameter.key();
    }
  }
}

TEST(Gpt, StartsAsGpt2Does) {
  torch::manual_seed(4);
  Gpt model(GptConfig{.vocabulary = 256, .context = 64, .layers = 8, .heads = 4, .width = 128});
  for (const auto& parameter : model->named_parameters()) {
    const std::string& name = parameter.key();
    const at::Tensor value = parameter.value().detach();
    if (name.find("ln_") != std::string::npos) {
      EXPECT_TRUE(value.eq(name.ends_with("weight") ? 1 : 0).all().item<bool>()) << name;
    } else if (name.ends_with("bias")) {
      EXPECT_TRUE(value.eq(0).all().item<bool>()) << name;
    } else {
      const double expected = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(16.0) : 0.02;
      EXPECT_NEAR(value.std().item<double>() / expected, 1, 0.05) << name;
      EXPECT_NEAR(value.mean().item<double>() / expected, 0, 0.05) << name;
    }
  }
  // Predictions are almost uniform, so the first loss is the logarithm of the vocabulary.
  const at::Tensor input = tokens(8, 64, 256);
  EXPECT_NEAR(cross_entropy(model->forward(input), tokens(8, 64, 256)).mean.item<double>(), std::log(256.0),
              0.1);
}

TEST(Gpt, HasTheNamesOfGpt2) {
  std::set<std::string> names;
  Gpt model(GptConfig{.vocabulary = 31, .context = 12, .layers = 1, .heads = 4, .width = 32});
  for (const auto& parameter : model->named_parameters()) names.insert(parameter.key());
  const std::set<std::string> expected = {"transformer.wte.weight",
                                          "transformer.wpe.weight",
                                          "transformer.h.0.ln_1.weight",
                                          "transformer.h.0.ln_1.bias",
                                          "transformer.h.0.ln_2.weight",
                                          "transformer.h.0.ln_2.bias",
                                          "transformer.h.0.attn.c_attn.weight",
                                          "transformer.h.0.attn.c_attn.bias",
                                          "transformer.h.0.attn.c_proj.weight",
                                          "transformer.h.0.attn.c_proj.bias",
                                          "transformer.h.0.mlp.c_fc.weight",
                                          "transformer.h.0.mlp.c_fc.bias",
                                          "transformer.h.0.mlp.c_proj.weight",
                                          "transformer.h.0.mlp.c_proj.bias",
                                          "transformer.ln_f.weight",
                                          "transformer.ln_f.bias",
                                          "lm_head.weight"};
  EXPECT_EQ(names, expected);
}

TEST(Gpt, DropoutActsInTrainingOnly) {
  torch::manual_seed(5);
  GptConfig config = kSmall;
  config.dropout = 0.5;
  Gpt model(config);
  const at::Tensor input = tokens(2, 8, config.vocabulary);
  EXPECT_FALSE(at::equal(model->forward(input), model->forward(input)));
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(input), model->forward(input)));
}

TEST(Gpt, RefusesWhatCannotBe) {
  GptConfig config = kSmall;
  config.heads = 5;
  EXPECT_THROW(Gpt{config}, UsageError);
  config = kSmall;
  config.layers = 0;
  EXPECT_THROW(Gpt{config}, UsageError);
  config = kSmall;
  config.dropout = 1.0;
  EXPECT_THROW(Gpt{config}, UsageError);
  Gpt model(kSmall);
  EXPECT_THROW(model->forward(tokens(1, 13, 31)), UsageError);
  EXPECT_THROW(model->forward(at::zeros({3}, at::kLong)), UsageError);
}

}  // namespace
}  // namespace rondo::gpt_test
