#include "rondo/models/gpt.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/models/model.h"
#include "tests/errors.h"

namespace rondo::gpt_config_test {
namespace {

using testing::expect_facts;
using testing::message_of;

TEST(GptConfigJson, ComesBack) {
  const GptConfig config{
      .vocabulary = 300, .context = 7, .layers = 2, .heads = 2, .width = 8, .tied_head = true};
  const GptConfig again = gpt_config_from(hugging_face_config(config), "config.json");
  EXPECT_EQ(gpt_model_config(again), gpt_model_config(config));
  EXPECT_EQ(gpt_tensor_name("h.0.ln_1.weight"), "transformer.h.0.ln_1.weight");
  EXPECT_EQ(gpt_tensor_name("lm_head.weight"), "lm_head.weight");
}

TEST(GptConfigJson, SaysWhatCannotBe) {
  const auto failure = [](const char* key, const nlohmann::json& value) {
    nlohmann::json document = hugging_face_config(GptConfig());
    document[key] = value;
    return message_of<DataError>([&] { gpt_config_from(document, "folder/config.json"); });
  };
  expect_facts(failure("model_type", "llama"), {"folder/config.json", "model_type", "gpt2"});
  expect_facts(failure("activation_function", "relu"), {"activation_function", "gelu_new"});
  expect_facts(failure("n_head", 7), {"folder/config.json", "7"});
  expect_facts(failure("n_layer", "many"), {"n_layer", "many"});
}

}  // namespace
}  // namespace rondo::gpt_config_test
