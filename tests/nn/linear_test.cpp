// Compares nn::Linear with torch::nn::Linear, from which only the addition of the bias differs.
#include "rondo/nn/linear.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <sstream>

#include "rondo/base/text.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/unit.h"
#include "tests/parallel/ranks.h"

namespace rondo::linear_test {
namespace {

using testing::fill_parameters;
using testing::random_tensor;

struct Pass {
  at::Tensor output, of_input, of_weight, of_bias;
};

template <class Layer>
Pass pass_of(Layer& layer, const at::Tensor& input) {
  const at::Tensor leaf = input.detach().clone().requires_grad_(true);
  Pass pass;
  pass.output = layer.forward(leaf);
  // Uses gradients other than one.
  (pass.output * random_tensor(pass.output.sizes(), 5, input.scalar_type())).sum().backward();
  pass.of_input = leaf.grad();
  pass.of_weight = layer.weight.grad();
  if (layer.bias.defined()) pass.of_bias = layer.bias.grad();
  return pass;
}

// Returns the largest difference relative to the largest value.
double difference(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() && !b.defined()) return 0;
  EXPECT_EQ(a.sizes(), b.sizes());
  return testing::largest_difference(a, b) / b.abs().max().item<double>();
}

TEST(Linear, ComputesWhatLibtorchsDoes) {
  for (const bool with_bias : {true, false}) {
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
             {48}, {5, 48}, {3, 7, 48}, {2, 3, 4, 48}, {0, 48}, {2, 0, 48}}) {
      const auto options = torch::nn::LinearOptions(48, 20).bias(with_bias);
      torch::nn::Linear plain(options);
      nn::Linear own(options);
      fill_parameters(*plain, 3);
      fill_parameters(*own, 3);
      const at::Tensor input = random_tensor(shape, 7, at::kFloat);
      const Pass expected = pass_of(*plain, input), got = pass_of(*own, input);
      EXPECT_TRUE(got.output.equal(expected.output)) << "[" << join(shape, ", ") << "] bias " << with_bias;
      EXPECT_TRUE(got.of_input.equal(expected.of_input));
      EXPECT_TRUE(got.of_weight.equal(expected.of_weight));
      ASSERT_EQ(got.of_bias.defined(), with_bias);
      EXPECT_TRUE(!with_bias || got.of_bias.equal(expected.of_bias));
    }
  }
}

// A product over many features may be summed in blocks, with the bias added to the first one.
TEST(Linear, AgreesWithinRoundingForManyFeatures) {
  for (const std::int64_t features : {512, 1536, 4096}) {
    torch::nn::Linear plain(features, 33);
    nn::Linear own(*plain);
    const at::Tensor input = random_tensor({2, 9, features}, 7, at::kFloat);
    plain->zero_grad();
    const Pass expected = pass_of(*plain, input);
    plain->zero_grad();
    const Pass got = pass_of(*own, input);
    const double bound = 1e-6;
    EXPECT_LE(difference(got.output, expected.output), bound) << features;
    EXPECT_LE(difference(got.of_input, expected.of_input), bound) << features;
    EXPECT_LE(difference(got.of_weight, expected.of_weight), bound) << features;
    EXPECT_LE(difference(got.of_bias, expected.of_bias), bound) << features;
  }
}

TEST(Linear, StartsWithTheSameValues) {
  torch::manual_seed(11);
  torch::nn::Linear plain(8, 4);
  torch::manual_seed(11);
  nn::Linear own(8, 4);
  EXPECT_TRUE(own->weight.equal(plain->weight) && own->bias.equal(plain->bias));
  torch::manual_seed(12);
  plain->reset_parameters();
  torch::manual_seed(12);
  own->reset_parameters();
  EXPECT_TRUE(own->weight.equal(plain->weight) && own->bias.equal(plain->bias));
  EXPECT_EQ(own->options.in_features(), 8);
  std::ostringstream plain_text, own_text;
  plain_text << *plain;
  own_text << *own;
  EXPECT_EQ(own_text.str(), plain_text.str());
}

// Each can read the other's checkpoints.
template <class From, class To>
void expect_same_state(From from, To to) {
  EXPECT_EQ(from->named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(from->named_parameters().keys(), to->named_parameters().keys());
  std::stringstream file;
  torch::save(from, file);
  torch::load(to, file);
  EXPECT_TRUE(to->weight.equal(from->weight) && to->bias.equal(from->bias));
}

TEST(Linear, InterchangesStateWithLibtorchs) {
  expect_same_state(torch::nn::Linear(5, 3), nn::Linear(5, 3));
  expect_same_state(nn::Linear(5, 3), torch::nn::Linear(5, 3));
}

TEST(Linear, WorksInASequential) {
  torch::nn::Sequential model(nn::Linear(6, 4), torch::nn::ReLU());
  model->push_back("last", nn::Linear(torch::nn::LinearOptions(4, 2).bias(false)));
  EXPECT_EQ(model->named_parameters().keys(),
            (std::vector<std::string>{"0.weight", "0.bias", "last.weight"}));
  auto& first = model->at<nn::LinearImpl>(0);
  const at::Tensor input = random_tensor({2, 3, 6}, 1, at::kFloat);
  EXPECT_TRUE(model->forward(input).equal(at::linear(at::relu(at::linear(input, first.weight, first.bias)),
                                                     model->at<nn::LinearImpl>(2).weight)));
  // The bias is added within the product, so the graph has only the product.
  EXPECT_EQ(first.forward(input).grad_fn()->name().find("Add"), std::string::npos);
  // The layer is found as libtorch's type.
  EXPECT_NE(model->ptr(0)->as<torch::nn::Linear>(), nullptr);
}

TEST(Linear, IsAUnit) {
  Unit<nn::Linear> unit(6, 4);
  const at::Tensor input = random_tensor({2, 3, 6}, 1, at::kFloat);
  EXPECT_TRUE(unit->forward(input).equal(at::linear(input, unit->weight, unit->bias)));
  EXPECT_NE(std::dynamic_pointer_cast<Unit<nn::Linear>::Impl>(unit->clone()), nullptr);
}

// libtorch's clone() returns the class that implements it, not a derived class.
template <class Layer>
void expect_clone(std::shared_ptr<Layer> layer) {
  fill_parameters(*layer, 3);
  layer->eval();
  const auto clone = std::dynamic_pointer_cast<Layer>(layer->clone());
  ASSERT_NE(clone, nullptr) << layer->name();
  EXPECT_FALSE(clone->is_training());
  EXPECT_EQ(clone->named_parameters().keys(), layer->named_parameters().keys());
  EXPECT_TRUE(clone->weight.equal(layer->weight));
  EXPECT_TRUE(clone->weight.is_leaf() && clone->weight.requires_grad());
  EXPECT_FALSE(clone->weight.is_alias_of(layer->weight));
  EXPECT_TRUE(clone->weight.is_alias_of(clone->named_parameters()["weight"]));
  layer->to(at::kDouble);
  EXPECT_EQ(clone->weight.scalar_type(), at::kFloat);
  EXPECT_NE(std::dynamic_pointer_cast<Layer>(layer->clone(at::Device(at::kCPU))), nullptr);
}

TEST(Linear, ClonesKeepTheType) {
  expect_clone(std::make_shared<nn::LinearImpl>(5, 3));
  expect_clone(std::make_shared<ParallelLinearImpl>(5, 3));
  expect_clone(std::make_shared<ParallelEmbeddingImpl>(torch::nn::EmbeddingOptions(5, 3)));
  expect_clone(std::make_shared<ParallelLayerNormImpl>(torch::nn::LayerNormOptions({5})));
}

TEST(Linear, SequentialsOfItAreCloned) {
  torch::nn::Sequential model(nn::Linear(6, 4), ParallelLinear(4, 2));
  const auto clone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  const at::Tensor input = random_tensor({2, 3, 6}, 1, at::kFloat);
  EXPECT_TRUE(clone->forward(input).equal(model->forward(input)));
  EXPECT_FALSE(clone->parameters()[0].is_alias_of(model->parameters()[0]));
}

}  // namespace
}  // namespace rondo::linear_test
