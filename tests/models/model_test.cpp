#include "rondo/models/model.h"

#include <gtest/gtest.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/error.h"
#include "rondo/models/model_options.h"
#include "tests/errors.h"

namespace rondo::model_test {
namespace {

using testing::expect_facts;

using nlohmann::json;

// Returns a batch for the model `name` with its default configuration.
std::pair<at::Tensor, at::Tensor> example(const Model& model, std::int64_t samples) {
  if (model.config.contains("context")) {
    const at::Tensor input = at::randint(model.config["vocabulary"].get<std::int64_t>(),
                                         {samples, model.config["context"]}, at::kLong);
    return {input, input};
  }
  if (model.config.contains("positions")) {
    const at::Tensor tokens = at::randint(1, 40, {samples, model.config["positions"]}, at::kLong);
    return {at::stack({tokens, at::zeros_like(tokens), at::ones_like(tokens)}, 1),
            at::randint(model.config["classes"].get<std::int64_t>(), {samples}, at::kLong)};
  }
  std::vector<std::int64_t> shape = model.config["input_shape"];
  shape.insert(shape.begin(), samples);
  return {at::randn(shape), at::randint(model.config["classes"].get<std::int64_t>(), {samples}, at::kLong)};
}

std::string usage_error(const std::function<void()>& call) { return testing::message_of<UsageError>(call); }

const std::vector<std::pair<std::string, json>> kVariants = {
    {"mlp", json::object()},
    {"mlp", {{"hidden", json::array()}}},
    {"mlp", {{"input_shape", {3, 32, 32}}, {"hidden", {32}}, {"classes", 7}}},
    {"convnet", json::object()},
    {"convnet", {{"input_shape", {3, 32, 32}}}},
    {"convnet", {{"input_shape", {3, 32, 32}}, {"batch_norm", true}}},
    {"convnet", {{"dropout", 0.1}}},
    {"bert",
     {{"vocabulary", 40},
      {"positions", 8},
      {"layers", 1},
      {"heads", 2},
      {"width", 16},
      {"intermediate", 24},
      {"dropout", 0.0},
      {"attention_dropout", 0.0},
      {"classifier_dropout", 0.0},
      {"classes", 3}}},
    {"gpt-tiny", json::object()},
    {"gpt", {{"layers", 1}, {"width", 32}, {"heads", 2}, {"context", 8}, {"tied_head", true}}},
};

TEST(Models, AStepLowersTheLossOfItsBatch) {
  for (const auto& [name, config] : kVariants) {
    torch::manual_seed(1);
    const Model model = make_model(name, config);
    const auto [input, target] = example(model, 8);
    torch::optim::SGD optimizer(model.module->parameters(), 0.1);
    const Loss before = cross_entropy(model.forward(input), target);
    EXPECT_EQ(before.predictions, target.numel());
    EXPECT_NEAR(before.mean.item<double>() * static_cast<double>(target.numel()), before.sum.item<double>(),
                1e-3 * before.sum.item<double>());
    before.mean.backward();
    for (const auto& parameter : model.module->named_parameters()) {
      EXPECT_TRUE(parameter.value().grad().defined()) << name << " " << parameter.key();
    }
    optimizer.step();
    EXPECT_LT(cross_entropy(model.forward(input), target).mean.item<double>(), before.mean.item<double>())
        << name << config;
  }
}

TEST(Models, EmptyBatchGivesZeroLossAndGradients) {
  for (const auto& [name, config] : kVariants) {
    const Model model = make_model(name, config);
    const auto [input, target] = example(model, 0);
    const at::Tensor logits = model.forward(input);
    const Loss loss = cross_entropy(logits, target);
    EXPECT_EQ(loss.predictions, 0);
    EXPECT_EQ(loss.mean.item<double>(), 0) << name;
    EXPECT_EQ(count_correct(logits, target).item<std::int64_t>(), 0);
    loss.mean.backward();
    for (const auto& parameter : model.module->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << name << config << " " << parameter.key();
      EXPECT_EQ(parameter.value().grad().abs().sum().item<double>(), 0) << name << " " << parameter.key();
    }
  }
}

TEST(Models, TheLossIsLibtorchsCrossEntropy) {
  const at::Tensor logits = at::randn({4, 5, 7});
  const at::Tensor target = at::randint(7, {4, 5}, at::kLong);
  const Loss loss = cross_entropy(logits, target);
  EXPECT_NEAR(loss.mean.item<double>(),
              at::cross_entropy_loss(logits.view({20, 7}), target.view({20})).item<double>(), 1e-6);
  EXPECT_EQ(count_correct(logits, logits.argmax(-1)).item<std::int64_t>(), 20);
}

TEST(Models, TheConfigurationRebuildsTheModel) {
  for (const auto& [name, config] : kVariants) {
    torch::manual_seed(3);
    const Model first = make_model(name, config);
    torch::manual_seed(3);
    const Model second = make_model(name, first.config);
    EXPECT_EQ(first.config, second.config);
    const auto a = first.module->named_parameters(), b = second.module->named_parameters();
    ASSERT_EQ(a.size(), b.size());
    for (const auto& parameter : a) EXPECT_TRUE(at::equal(parameter.value(), b[parameter.key()]));
  }
}

TEST(Models, TheSizesAreThoseStated) {
  // The benchmark's definition: 8 layers, width 512, context 128, 256 bytes, an untied output layer.
  EXPECT_EQ(count_parameters(*make_model("gpt-25m").module), 25547776);
  EXPECT_EQ(count_parameters(*make_model("gpt-25m", {{"tied_head", true}}).module), 25416704);
  EXPECT_EQ(count_parameters(*make_model("bert-tiny").module), 4386178);
  EXPECT_EQ(count_parameters(*make_model("mlp").module), 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10);
}

TEST(Models, ErrorsNameTheSettingAndWhatIsAllowed) {
  expect_facts(usage_error([] { make_model("transformer"); }),
               {"'transformer'", "bert", "bert-tiny", "convnet", "gpt", "gpt-25m", "gpt-tiny", "mlp"});
  expect_facts(usage_error([] {
                 make_model("mlp", {{"context", 128}});
               }),
               {"mlp", "'context'", "classes", "hidden", "input_shape"});
  expect_facts(usage_error([] { make_model("gpt", {{"layers", 0}}); }), {"gpt", "layers", "0", "1"});
  expect_facts(usage_error([] {
                 make_model("gpt", {{"width", "wide"}});
               }),
               {"gpt", "width", "\"wide\"", "1"});
  expect_facts(usage_error([] { make_model("mlp", {{"hidden", 3}}); }), {"mlp", "hidden", "3", "1"});
  expect_facts(usage_error([] {
                 make_model("convnet", {{"input_shape", {4}}});
               }),
               {"convnet", "input_shape", "[4]", "[channels, height, width]"});
  EXPECT_NE(usage_error([] {
              make_model("convnet", {{"input_shape", {1, 3, 3}}});
            }).find("too small"),
            std::string::npos);
  EXPECT_NE(usage_error([] { make_model("gpt", 3); }).find("JSON object"), std::string::npos);
  EXPECT_NE(usage_error([] { make_model("mlp").forward(at::zeros({2, 5})); }).find("784"), std::string::npos);
  EXPECT_NE(usage_error([] {
              make_model("convnet").forward(at::zeros({2, 784}));
            }).find("28"),
            std::string::npos);
}

TEST(Models, BatchNormHasRunningStatistics) {
  const Model plain = make_model("convnet");
  const Model normalised = make_model("convnet", {{"batch_norm", true}});
  EXPECT_TRUE(plain.module->buffers().empty());
  EXPECT_EQ(normalised.module->buffers().size(), 6U);  // mean, variance and count of two layers
}

// Command lines list exactly these models.
TEST(Models, AreAllDeclared) {
  std::vector<std::string> declared;
  for (const Declaration& entry : declared_models()) declared.push_back(entry.name);
  EXPECT_EQ(declared,
            (std::vector<std::string>{"bert", "bert-tiny", "convnet", "gpt", "gpt-25m", "gpt-tiny", "mlp"}));
  EXPECT_EQ(declared, model_names());
  for (const std::string& name : declared) EXPECT_FALSE(model_config(name).empty()) << name;
}

}  // namespace
}  // namespace rondo::model_test
