#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/script.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/nn/model.h"
#include "rondo/nn/model_tensors.h"
#include "tests/errors.h"

namespace rondo::model_function_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::states;

struct TwoInputsImpl : torch::nn::Module {
  TwoInputsImpl() : linear(register_module("linear", torch::nn::Linear(3, 2))) {}
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& mask) {
    const at::Tensor y = linear(x) * mask;
    return {y, y.sum(1)};
  }
  torch::nn::Linear linear;
};

TEST(ForwardFunction, TakesAnySignature) {
  const at::Tensor one = torch::ones({2, 3});
  const ForwardFunction single = [](const at::Tensor& x) { return x * 2; };
  EXPECT_TRUE(at::equal(single(one), one * 2));
  const ForwardFunction several = [](const at::Tensor& x, const at::Tensor& y, at::Tensor z) {
    return x + y + z;
  };
  EXPECT_TRUE(at::equal(several.run({one, one, one}).front(), one * 3));
  const ForwardFunction vector = [](const Tensors& inputs) { return Tensors{inputs[0], inputs[0] + 1}; };
  EXPECT_EQ(vector.run({one}).size(), 2);

  const Model model = as_model(std::make_shared<TwoInputsImpl>());
  const Tensors outputs = model.forward.run({one, torch::ones({2, 1})});
  ASSERT_EQ(outputs.size(), 2);
  EXPECT_TRUE(at::allclose(outputs[0].sum(1), outputs[1]));
}

// SequentialImpl::forward is a template that accepts any argument.
TEST(ForwardFunction, TakesASequentialAsWhatItsLayersTake) {
  torch::nn::Sequential layers(torch::nn::Linear(3, 2), torch::nn::ReLU());
  const Model model = as_model(layers.ptr());
  const at::Tensor input = torch::ones({4, 3});
  EXPECT_TRUE(at::equal(model.forward(input), layers->forward(input)));
}

TEST(ForwardFunction, SaysWhatDoesNotFit) {
  const at::Tensor one = torch::ones({2});
  const ForwardFunction two = [](const at::Tensor& x, const at::Tensor& y) { return x + y; };
  const std::string inputs = message_of<UsageError>([&] { two.run({one}); });
  EXPECT_TRUE(states(inputs, "1 input") && states(inputs, "takes 2")) << inputs;
  const ForwardFunction nothing = [](const at::Tensor&) { return Tensors(); };
  expect_facts(message_of<UsageError>([&] { nothing.run({one}); }), {"no tensor", "vector", "tuple"});
  const ForwardFunction undefined = [](const at::Tensor& x) { return Tensors{x, at::Tensor()}; };
  EXPECT_TRUE(states(message_of<UsageError>([&] { undefined.run({one}); }), "output 1"));
  EXPECT_TRUE(states(message_of<UsageError>([] { ForwardFunction().run({}); }), "no forward"));
  const ForwardFunction pair = [](const at::Tensor& x) { return Tensors{x, x}; };
  EXPECT_TRUE(states(message_of<UsageError>([&] { pair(one); }), "2 tensors"));
}

TEST(ScriptModule, HasItsTensorsUnderTheirNames) {
  torch::jit::Module inner("inner");
  inner.register_parameter("weight", torch::full({3}, 2.0).requires_grad_(), /*is_buffer=*/false);
  inner.define("def forward(self, x):\n  return x * self.weight\n");
  torch::jit::Module script("Outer");
  script.register_attribute("training", c10::BoolType::get(), true);
  script.register_module("layer", inner);
  script.register_buffer("offset", torch::ones({3}));
  script.define(R"(
def forward(self, x, y):
  if self.training:
    return self.layer.forward(x) + y
  return self.layer.forward(x) + y + self.offset
)");
  const Model model = as_model(script);
  const ModelTensors tensors = tensors_of(*model.module);
  ASSERT_EQ(tensors.parameters.size(), 1);
  EXPECT_EQ(tensors.parameters.front().name, "layer.weight");
  ASSERT_EQ(tensors.buffers.size(), 1);
  EXPECT_EQ(tensors.buffers.front().name, "offset");

  const at::Tensor x = torch::ones({3});
  model.module->train();
  EXPECT_TRUE(at::equal(model.forward.run({x, x}).front(), torch::full({3}, 3.0)));
  model.module->eval();
  EXPECT_TRUE(at::equal(model.forward.run({x, x}).front(), torch::full({3}, 4.0)));
  // The tensors are shared: forward uses an optimizer's changes.
  {
    const torch::NoGradGuard no_grad;
    at::Tensor(tensors.parameters.front().tensor).fill_(5);
  }
  model.module->train();
  const at::Tensor output = model.forward.run({x, x}).front();
  EXPECT_TRUE(at::equal(output, torch::full({3}, 6.0)));
  output.sum().backward();
  EXPECT_TRUE(at::equal(tensors.parameters.front().tensor.grad(), x));
}

TEST(ScriptModule, ReturnsTensors) {
  const at::Tensor x = torch::ones({3});
  const auto message = [&](const char* name, const char* source) {
    torch::jit::Module script(name);
    script.define(source);
    const Model model = as_model(script);
    return message_of<UsageError>([&] { model.forward.run({x}); });
  };
  expect_facts(message("ReturnsNothing", "def forward(self, x):\n  return None\n"),
               {"TorchScript", "None", "a tensor", "tuple"});
  expect_facts(message("ReturnsANumber", "def forward(self, x):\n  return (x, 1)\n"),
               {"TorchScript", "element 1", "Int", "tuple"});
}

TEST(ModelFactory, MakesReplicasWithTheValuesOfTheFirst) {
  int calls = 0;
  const ModelFactory factory = [&] {
    torch::manual_seed(++calls);
    return as_model(std::make_shared<torch::nn::LinearImpl>(3, 2));
  };
  const std::vector<Model> models = make_replicas(factory, 3);
  EXPECT_EQ(calls, 3);
  for (const Model& model : models) {
    EXPECT_TRUE(at::equal(model.module->parameters()[0], models[0].module->parameters()[0]));
  }
  EXPECT_FALSE(models[1].module->parameters()[0].is_same(models[0].module->parameters()[0]));
}

TEST(ModelFactory, MakesTheSameModelAtEachCall) {
  int calls = 0;
  const ModelFactory factory = [&] { return as_model(std::make_shared<torch::nn::LinearImpl>(3, ++calls)); };
  const std::string message = message_of<UsageError>([&] { make_replicas(factory, 2); });
  EXPECT_TRUE(states(message, "replica 1") && states(message, "'weight'") && states(message, "[2, 3]") &&
              states(message, "[1, 3]"))
      << message;
  const ModelFactory once = only(as_model(std::make_shared<torch::nn::LinearImpl>(3, 2)));
  once();
  EXPECT_TRUE(states(message_of<UsageError>([&] { once(); }), "function that makes the model"));
  EXPECT_TRUE(
      states(message_of<UsageError>([] { make_replicas([] { return Model(); }, 1); }), "Model::module"));
}

}  // namespace
}  // namespace rondo::model_function_test
