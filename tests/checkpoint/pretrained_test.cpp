#include "rondo/checkpoint/pretrained.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/checkpoint/tensor_file.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::pretrained_test {
namespace {

using testing::expect_facts;
using testing::message_of;

// Two layers and a head; the file may name the first weight differently, because it is shared.
NamedTensors small_model() {
  return {{"encoder.weight", at::zeros({2, 3})},
          {"encoder.bias", at::zeros({2})},
          {"head.weight", at::zeros({4, 2})},
          {"head.bias", at::zeros({4})}};
}

PretrainedNames small_names() {
  return {.in_model =
              [](const std::string& name) {
                return name.starts_with("old.") ? "encoder." + name.substr(4) : name;
              },
          .optional_parts = {"head."},
          .shared = {{"decoder.weight", "encoder.weight"}}};
}

class Pretrained : public ::testing::Test {
 protected:
  PretrainedReport load(const NamedTensors& content, const NamedTensors& model) {
    const std::string path = directory_.path().string() + "/" + std::to_string(files_++) + ".safetensors";
    write_tensors(path, content);
    return load_pretrained(path, model, small_names());
  }
  std::string error(const NamedTensors& content) {
    const NamedTensors model = small_model();
    const std::string message = message_of<DataError>([&] { load(content, model); });
    for (const NamedTensor& t : model)
      EXPECT_EQ(t.tensor.abs().sum().item<float>(), 0) << "changed in spite of: " << message;
    return message;
  }

  TemporaryDirectory directory_;
  int files_ = 0;
};

const at::Tensor kWeight = at::ones({2, 3}), kBias = at::ones({2});

TEST_F(Pretrained, LoadsByNameAndKeepsMissingHead) {
  const NamedTensors model = small_model();
  const PretrainedReport report = load(
      {{"encoder.weight", kWeight}, {"old.bias", kBias.to(at::kBFloat16)}, {"pooler.weight", kBias}}, model);
  EXPECT_EQ(model[0].tensor.sum().item<float>(), 6);
  EXPECT_EQ(model[1].tensor.sum().item<float>(), 2);
  EXPECT_EQ(model[2].tensor.sum().item<float>(), 0);
  EXPECT_EQ(report.missing_parts, std::vector<std::string>{"head."});
  EXPECT_EQ(report.unused, std::vector<std::string>{"pooler.weight"});
}

TEST_F(Pretrained, SharedTensorsMayHaveEitherName) {
  const at::Tensor head = at::ones({4, 2}), bias = at::ones({4});
  for (const NamedTensors& content :
       {NamedTensors{{"decoder.weight", kWeight}, {"encoder.bias", kBias}},
        NamedTensors{
            {"decoder.weight", kWeight}, {"encoder.weight", kWeight.clone()}, {"encoder.bias", kBias}}}) {
    const NamedTensors model = small_model();
    EXPECT_TRUE(load(content, model).unused.empty());
    EXPECT_EQ(model[0].tensor.sum().item<float>(), 6);
  }
  expect_facts(error({{"decoder.weight", kWeight}, {"encoder.weight", kWeight * 2}, {"encoder.bias", kBias}}),
               {"'decoder.weight'", "'encoder.weight'"});
}

TEST_F(Pretrained, ErrorsNameTheFirstTensor) {
  expect_facts(error({{"encoder.weight", kWeight}}), {"'encoder.bias'", "missing"});
  expect_facts(error({{"encoder.weight", kWeight}, {"encoder.bias", at::ones({3})}}),
               {"'encoder.bias'", "[3]", "[2]"});
  expect_facts(error({{"encoder.weight", kWeight}, {"encoder.bias", kBias.to(at::kLong)}}),
               {"Long", "Float"});
  expect_facts(error({{"encoder.weight", kWeight}, {"encoder.bias", kBias}, {"head.bias", at::ones({4})}}),
               {"'head.weight'", "missing"});
  expect_facts(error({{"encoder.bias", kBias}, {"old.bias", kBias.clone()}}), {"'encoder.bias'", "twice"});
}

}  // namespace
}  // namespace rondo::pretrained_test
