#include "rondo/models/script.h"

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "rondo/base/error.h"
#include "rondo/models/model.h"
#include "rondo/models/model_setup.h"
#include "tests/errors.h"

namespace rondo::script_test {
namespace {

// Compares the script, saved and loaded again, with the model in evaluation mode. `tolerance` is relative and
// absolute: scripts have at::gelu where models have nn::gelu_tanh.
void expect_equal_outputs(const std::string& name, const nlohmann::json& config, double tolerance = 0) {
  torch::manual_seed(3);
  const Model model = make_model(name, config);
  const at::NoGradGuard no_gradients;
  bool any_batch = false;
  const torch::jit::Module script = script_of(model, example_batch(model, 2).input, any_batch);
  EXPECT_TRUE(any_batch) << name;
  std::stringstream archive;
  script.save(archive);
  torch::jit::Module loaded = torch::jit::load(archive);
  model.module->eval();
  for (const std::int64_t samples : {1, 5}) {
    const at::Tensor input = example_batch(model, samples).input;
    const at::Tensor output = loaded.forward({input}).toTensor();
    EXPECT_TRUE(at::allclose(output, model.forward(input), tolerance, tolerance)) << name << config;
  }
}

TEST(ScriptOf, BuiltInModelsGiveEqualOutputs) {
  expect_equal_outputs("mlp", {{"input_shape", {2, 3}}, {"hidden", {5, 4}}, {"classes", 3}});
  for (const bool norm : {false, true})
    expect_equal_outputs("convnet", {{"input_shape", {3, 9, 8}},
                                     {"features", {4, 6}},
                                     {"batch_norm", norm},
                                     {"dropout", norm ? 0.3 : 0.0}});
  for (const bool tied : {false, true})
    expect_equal_outputs(
        "gpt",
        {{"layers", 2}, {"heads", 2}, {"width", 16}, {"context", 12}, {"tied_head", tied}, {"dropout", 0.1}},
        1e-6);
  for (const char* task : {"classify", "mlm"})
    expect_equal_outputs(
        "bert-tiny",
        {{"task", task}, {"vocabulary", 40}, {"positions", 16}, {"classes", 3}, {"activation", "gelu_new"}},
        1e-6);
}

struct OwnNetImpl : torch::nn::Module {
  OwnNetImpl() : linear(register_module("linear", torch::nn::Linear(4, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return torch::tanh(linear(x)); }
  torch::nn::Linear linear;
};

TEST(ScriptOf, OtherModelsAreTraced) {
  const Model model = as_model(std::make_shared<OwnNetImpl>());
  bool any_batch = false;
  torch::jit::Module script = script_of(model, torch::randn({2, 4}), any_batch);
  EXPECT_TRUE(any_batch);
  const at::Tensor input = torch::randn({7, 4});
  EXPECT_TRUE(at::equal(script.forward({input}).toTensor(), model.forward(input)));
  // Parameters belong to the script under their names; they are no constants of the trace.
  ASSERT_EQ(script.named_parameters().size(), 2);
  const at::NoGradGuard no_gradients;
  for (const auto& parameter : script.named_parameters()) parameter.value.zero_();
  EXPECT_EQ(script.forward({input}).toTensor().abs().sum().item<float>(), 0);
}

TEST(ScriptOf, ReportsTracesWithFixedBatchSize) {
  Model model = as_model(std::make_shared<OwnNetImpl>());
  model.forward = [raw = model.module](const at::Tensor& x) {
    return raw->as<OwnNetImpl>()->forward(x).reshape({x.size(0) * 3});
  };
  bool any_batch = true;
  script_of(model, torch::randn({2, 4}), any_batch);
  EXPECT_FALSE(any_batch);
}

}  // namespace
}  // namespace rondo::script_test
