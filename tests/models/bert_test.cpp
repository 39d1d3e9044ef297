#include "rondo/models/bert.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <set>

#include "rondo/base/error.h"
#include "rondo/models/model.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/unit_state.h"
#include "tests/errors.h"

namespace rondo::bert_test {
namespace {

const BertConfig kSmall{.vocabulary = 29,
                        .positions = 10,
                        .layers = 2,
                        .heads = 2,
                        .width = 16,
                        .intermediate = 24,
                        .dropout = 0,
                        .attention_dropout = 0,
                        .classifier_dropout = 0,
                        .classes = 3};

BertConfig with(BertTask task, double dropout = 0) {
  BertConfig config = kSmall;
  config.task = task;
  config.dropout = config.attention_dropout = config.classifier_dropout = dropout;
  return config;
}

at::Tensor packed(std::int64_t samples, std::int64_t length, std::int64_t filled = -1) {
  at::Tensor input = at::zeros({samples, 3, length}, at::kLong);
  const std::int64_t count = filled < 0 ? length : filled;
  input.select(1, 0)
      .narrow(1, 0, count)
      .copy_(at::randint(1, kSmall.vocabulary, {samples, count}, at::kLong));
  input.select(1, 1).narrow(1, count / 2, count - count / 2).fill_(1);
  input.select(1, 2).narrow(1, 0, count).fill_(1);
  return input;
}

TEST(Bert, WhatFillsASampleUpChangesNothing) {
  torch::manual_seed(1);
  BertForSequenceClassification model(kSmall);
  const at::Tensor long_input = packed(3, 10, 6);
  const at::Tensor short_input = long_input.narrow(2, 0, 6).contiguous();
  EXPECT_TRUE(at::allclose(model->forward(long_input), model->forward(short_input), 1e-5, 1e-6));
  at::Tensor other = long_input.clone();
  other.select(1, 0).narrow(1, 6, 4).fill_(7);
  EXPECT_TRUE(at::allclose(model->forward(long_input), model->forward(other), 1e-5, 1e-6));
  other.select(1, 0).narrow(1, 5, 1).fill_(7);
  EXPECT_FALSE(at::allclose(model->forward(long_input), model->forward(other), 1e-5, 1e-6));
}

TEST(Bert, GradientsReachEveryParameter) {
  for (const BertTask task : {BertTask::classify, BertTask::mlm}) {
    torch::manual_seed(2);
    const Model model = make_model("bert", bert_model_config(with(task)));
    const at::Tensor input = packed(4, 10);
    const at::Tensor target = task == BertTask::mlm ? input.select(1, 0) : at::arange(4) % 3;
    cross_entropy(model.forward(input), target).mean.backward();
    for (const auto& parameter : model.module->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
      EXPECT_GT(parameter.value().grad().abs().sum().item<float>(), 0) << parameter.key();
    }
    const at::Tensor embeddings = model.module->named_parameters()["bert.embeddings.word_embeddings.weight"];
    EXPECT_EQ(embeddings[0].abs().sum().item<float>(), 0);  // padding starts at 0
  }
}

TEST(Bert, HasTheNamesOfHuggingFace) {
  const auto names = [](const BertConfig& config) {
    std::set<std::string> result;
    for (const auto& p : make_model("bert", bert_model_config(config)).module->named_parameters())
      result.insert(p.key());
    return result;
  };
  BertConfig config = with(BertTask::classify);
  config.layers = 1;
  std::set<std::string> encoder = {"bert.embeddings.word_embeddings.weight",
                                   "bert.embeddings.position_embeddings.weight",
                                   "bert.embeddings.token_type_embeddings.weight",
                                   "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.bias"};
  for (const char* part :
       {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
        "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"}) {
    for (const char* tensor : {".weight", ".bias"})
      encoder.insert(std::string("bert.encoder.layer.0.") + part + tensor);
  }
  std::set<std::string> expected = encoder;
  expected.insert(
      {"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"});
  EXPECT_EQ(names(config), expected);
  config.task = BertTask::mlm;
  expected = encoder;
  expected.insert({"cls.predictions.bias", "cls.predictions.transform.dense.weight",
                   "cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight",
                   "cls.predictions.transform.LayerNorm.bias"});
  EXPECT_EQ(names(config), expected);
}

TEST(Bert, EachLayerIsAUnit) {
  const Model model = make_model("bert", bert_model_config(kSmall));
  std::vector<std::string> names;
  for (const ModelUnit& unit : partition_into_units(*model.module)) names.push_back(unit.name);
  EXPECT_EQ(names, (std::vector<std::string>{"root", "bert.encoder.layer.0", "bert.encoder.layer.1"}));
}

TEST(Bert, OldAndBareNamesAreUnderstood) {
  EXPECT_EQ(bert_tensor_name("bert.embeddings.LayerNorm.gamma"), "bert.embeddings.LayerNorm.weight");
  EXPECT_EQ(bert_tensor_name("encoder.layer.3.output.LayerNorm.beta"),
            "bert.encoder.layer.3.output.LayerNorm.bias");
  EXPECT_EQ(bert_tensor_name("classifier.weight"), "classifier.weight");
}

TEST(Bert, ReadsTheConfigurationOfHuggingFace) {
  nlohmann::json config = {{"model_type", "bert"},
                           {"vocab_size", 100},
                           {"max_position_embeddings", 64},
                           {"type_vocab_size", 2},
                           {"num_hidden_layers", 3},
                           {"num_attention_heads", 4},
                           {"hidden_size", 32},
                           {"intermediate_size", 48},
                           {"hidden_act", "gelu_new"},
                           {"hidden_dropout_prob", 0.2},
                           {"classifier_dropout", {}},
                           {"pad_token_id", 1},
                           {"position_embedding_type", "absolute"}};
  const BertConfig read = bert_config_from(config, "config.json");
  EXPECT_EQ(read.vocabulary, 100);
  EXPECT_EQ(read.layers, 3);
  EXPECT_EQ(read.activation, "gelu_new");
  EXPECT_EQ(read.classifier_dropout, 0.2);
  EXPECT_EQ(read.padding, 1);
  const auto message = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json other = config;
    if (value.is_discarded()) {
      other.erase(key);
    } else {
      other[key] = value;
    }
    try {
      bert_config_from(other, "config.json");
      return std::string("nothing was thrown");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  const nlohmann::json missing = nlohmann::json::value_t::discarded;
  testing::expect_facts(message("hidden_size", missing), {"config.json", "hidden_size"});
  testing::expect_facts(message("model_type", "roberta"), {"config.json", "model_type", "roberta", "bert"});
  testing::expect_facts(message("hidden_size", "32"), {"config.json", "hidden_size"});
  testing::expect_facts(message("hidden_act", "swish"), {"swish"});
  testing::expect_facts(message("num_attention_heads", 5), {"32", "5"});
  testing::expect_facts(message("position_embedding_type", "relative_key"), {"relative_key", "absolute"});
}

TEST(Bert, DropoutFollowsTheSamplesWhereverTheyAre) {
  for (const BertTask task : {BertTask::classify, BertTask::mlm}) {
    torch::manual_seed(3);
    const Model model = make_model("bert", bert_model_config(with(task, 0.3)));
    const at::Tensor input = packed(4, 10, 8);
    const auto outputs = [&](std::int64_t first, std::int64_t count) {
      std::vector<std::int64_t> indices;
      for (std::int64_t i = 0; i < count; ++i) indices.push_back(100 + first + i);
      const SampleScope scope({.seed = 1, .step = 2, .indices = indices});
      return model.forward(input.narrow(0, first, count));
    };
    const at::Tensor whole = outputs(0, 4);
    EXPECT_TRUE(at::allclose(whole, at::cat({outputs(0, 1), outputs(1, 3)}), 1e-5, 1e-6));
    model.module->eval();
    EXPECT_FALSE(at::allclose(whole, outputs(0, 4), 1e-3, 1e-3));
  }
}

TEST(Bert, EmptyBatchHasZeroLossWithGradients) {
  for (const BertTask task : {BertTask::classify, BertTask::mlm}) {
    const Model model = make_model("bert", bert_model_config(with(task, 0.1)));
    const at::Tensor logits = model.forward(at::zeros({0, 3, 10}, at::kLong));
    const Loss loss = cross_entropy(
        logits,
        at::zeros(task == BertTask::mlm ? at::IntArrayRef({0, 10}) : at::IntArrayRef({0}), at::kLong));
    loss.mean.backward();
    EXPECT_EQ(loss.mean.item<float>(), 0);
    for (const at::Tensor& p : model.module->parameters()) {
      ASSERT_TRUE(p.grad().defined());
      EXPECT_EQ(p.grad().abs().sum().item<float>(), 0);
    }
  }
}

TEST(Bert, RefusesWhatCannotBe) {
  BertForSequenceClassification model(kSmall);
  EXPECT_THROW(model->forward(packed(1, 11)), UsageError);
  EXPECT_THROW(model->forward(at::zeros({2, 10}, at::kLong)), UsageError);
  EXPECT_THROW(model->forward(at::zeros({2, 3, 10})), UsageError);
  for (const nlohmann::json& bad : {nlohmann::json{{"heads", 5}},
                                    {{"task", "translate"}},
                                    {{"activation", "sine"}},
                                    {{"dropout", 1.0}},
                                    {{"padding", 30522}},
                                    {{"epsilon", 0}}}) {
    EXPECT_THROW(make_model("bert", bad), UsageError) << bad;
  }
}

TEST(Loss, IgnoredTargetsCountNowhere) {
  torch::manual_seed(4);
  const at::Tensor logits = at::randn({2, 3, 5}).requires_grad_();
  const at::Tensor target = torch::tensor({{1, -100, 2}, {-100, -100, 4}}, at::kLong);
  const Loss loss = cross_entropy(logits, target);
  EXPECT_EQ(loss.predictions, 3);
  EXPECT_NEAR(loss.mean.item<double>(),
              at::cross_entropy_loss(logits.view({6, 5}), target.view({6})).item<double>(), 1e-6);
  EXPECT_EQ(count_predictions(at::zeros({4, 2})), 8);
  EXPECT_EQ(cross_entropy(logits, at::full({2, 3}, kIgnoredTarget, at::kLong)).mean.item<double>(), 0);
}

TEST(Freeze, TakesPartsByTheirNames) {
  const Model model = make_model("bert", bert_model_config(kSmall));
  const std::int64_t before = count_parameters(*model.module);
  EXPECT_EQ(freeze(*model.module, {}), 0);
  EXPECT_EQ(freeze(*model.module, {"embeddings", "layer.0"}), 5 + 16);
  EXPECT_LT(count_parameters(*model.module), before);
  for (const auto& p : model.module->named_parameters()) {
    const bool frozen =
        p.key().starts_with("bert.embeddings.") || p.key().starts_with("bert.encoder.layer.0.");
    EXPECT_EQ(p.value().requires_grad(), !frozen) << p.key();
  }
  const auto message = [&](const std::vector<std::string>& parts) {
    try {
      freeze(*model.module, parts);
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  // Matches whole names only.
  EXPECT_NE(message({"embedding"}).find("'embedding'"), std::string::npos);
  EXPECT_NE(message({"embedding"}).find("bert.encoder"), std::string::npos);
  EXPECT_NE(message({"bert", "classifier"}).find("nothing to train"), std::string::npos);
}

}  // namespace
}  // namespace rondo::bert_test
