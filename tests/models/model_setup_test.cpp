#include "rondo/models/model_setup.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/models/gpt.h"
#include "rondo/models/model.h"
#include "rondo/models/model_families.h"
#include "rondo/models/model_options.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::model_setup_test {
namespace {

using nlohmann::json;
using testing::expect_facts;
using testing::message_of;

json settings(const std::string& model, const OptionValues& values) {
  return model_setup(model, values)->settings();
}

DataNeeds needs(const std::string& model, const OptionValues& values = {}) {
  const auto setup = model_setup(model, values);
  json config = model_file(model) ? json::object() : model_config(model);
  config.update(setup->settings());
  return setup->data_needs(config);
}

TEST(ModelSetup, EveryModelHasItsFamilysOptions) {
  std::size_t models = 0;
  for_each_model_family([&](auto family) {
    using Family = decltype(family);
    for (const Declaration& declared : Family::declarations()) {
      ++models;
      EXPECT_EQ(declared.options.type(), std::type_index(typeid(typename Family::Options))) << declared.name;
      EXPECT_EQ(settings(declared.name, {}), json::object()) << declared.name;
    }
  });
  EXPECT_EQ(models, model_names().size());
}

TEST(ModelSetup, OptionsBecomeSettingsOfTheirModel) {
  const OptionValues given = {{"layers", "2"},  {"dropout", "0.5"}, {"seq-len", "8"},
                              {"experts", "4"}, {"task", "mlm"},    {"bucket-size", "1MiB"}};
  EXPECT_EQ(settings("gpt-tiny", given),
            (json{{"layers", 2}, {"dropout", 0.5}, {"context", 8}, {"experts", 4}}));
  EXPECT_EQ(settings("bert", given),
            (json{{"layers", 2}, {"dropout", 0.5}, {"attention_dropout", 0.5}, {"classifier_dropout", 0.5}}));
  EXPECT_EQ(settings("convnet", given), (json{{"dropout", 0.5}}));
  EXPECT_EQ(settings("mlp", given), json::object());
  EXPECT_EQ(settings("some/model.pt", given), (json{{"context", 8}}));
  expect_facts(message_of<UsageError>([] { model_setup("gpt", {{"layers", "0"}}); }), {"--layers", "0"});
  expect_facts(message_of<UsageError>([] { model_setup("gpt2", {}); }), {"gpt2", "gpt-tiny"});
}

TEST(ModelSetup, ExampleBatchesHaveTheGivenLength) {
  const Model bert = make_model("bert-tiny", {{"positions", 256}, {"vocabulary", 50}, {"classes", 2}});
  EXPECT_EQ(example_batch(bert, 2).input.sizes(), (std::vector<std::int64_t>{2, 3, 128}));
  EXPECT_EQ(example_batch(bert, 2, 16).input.sizes(), (std::vector<std::int64_t>{2, 3, 16}));
  EXPECT_EQ(example_batch(bert, 2, 256).input.sizes(), (std::vector<std::int64_t>{2, 3, 256}));
  expect_facts(message_of<UsageError>([&] { example_batch(bert, 2, 257); }),
               {"--seq-len 257", "256 positions"});
}

TEST(ModelSetup, ModelsSayWhichDataTheyNeed) {
  EXPECT_EQ(needs("gpt-tiny").unit, "tokens");
  EXPECT_EQ(needs("gpt-tiny").context, 64);
  EXPECT_EQ(needs("gpt-tiny", {{"seq-len", "8"}}).context, 8);
  EXPECT_EQ(needs("convnet").unit, "samples");
  EXPECT_EQ(needs("convnet").context, std::nullopt);
  EXPECT_EQ(needs("some/libmodel.so:make", {{"seq-len", "8"}}).context, 8);
  EXPECT_EQ(needs("some/libmodel.so:make").unit, "");
  const DataNeeds classify = needs("bert"), mlm = needs("bert-tiny", {{"task", "mlm"}, {"cased", "true"}});
  EXPECT_EQ(classify.kind, "labelled_text");
  EXPECT_EQ(classify.context, 128);
  EXPECT_TRUE(classify.lower_case);
  EXPECT_EQ(mlm.kind, "masked_text");
  EXPECT_NE(mlm.kind_by.find("mlm"), std::string::npos);
  EXPECT_FALSE(mlm.lower_case);
  EXPECT_EQ(models_for("tokens"), (std::vector<std::string>{"gpt", "gpt-25m", "gpt-tiny"}));
  EXPECT_EQ(models_for("samples"), (std::vector<std::string>{"convnet", "mlp"}));
}

TEST(ModelSetup, PretrainedFolderDecidesSizeContextAndTokenizer) {
  const TemporaryDirectory folder;
  const GptConfig pretrained{.vocabulary = 300, .context = 16, .layers = 1, .heads = 2, .width = 8};
  folder.write("config.json", hugging_face_config(pretrained).dump());
  folder.write("tokenizer.json", "{}");
  const OptionValues init = {{"from-pretrained", folder.path().string()}};
  const DataNeeds asked = needs("gpt", init);
  EXPECT_EQ(asked.context, 16);
  EXPECT_EQ(asked.options, (OptionValues{{"tokenizer", (folder / "tokenizer.json").string()}}));
  const auto setup = model_setup("gpt", init);
  EXPECT_EQ(setup->init(), folder.path().string());
  const json config = setup->config({{"context", 8}, {"vocabulary", 290}}, {{"context", 8}}, "data.txt");
  EXPECT_EQ(config.at("context"), 16);
  EXPECT_EQ(config.at("width"), 8);
  expect_facts(message_of<UsageError>([&] {
                 setup->config({{"context", 8}, {"vocabulary", 256}}, json::object(), "data.txt");
               }),
               {"data.txt", "256", "300"});
  expect_facts(message_of<UsageError>([&] {
                 needs("gpt", {{"from-pretrained", folder.path().string()}, {"seq-len", "17"}});
               }),
               {"--seq-len 17", "16"});
}

}  // namespace
}  // namespace rondo::model_setup_test
