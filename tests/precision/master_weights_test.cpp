#include "rondo/precision/training_precision.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "rondo/precision/autocast.h"
#include "rondo/precision/grad_scaler.h"

namespace rondo::master_weights_test {
namespace {

using torch::optim::Optimizer;
using Factory = std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>)>;

torch::nn::Sequential model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(),
                               torch::nn::Linear(8, 4));
}

const std::vector<std::pair<std::string, Factory>>& optimizers() {
  using namespace torch::optim;
  static const std::vector<std::pair<std::string, Factory>> all = {
      {"SGD", [](auto p) { return std::make_unique<SGD>(p, SGDOptions(1e-2).momentum(0.9)); }},
      {"Adam", [](auto p) { return std::make_unique<Adam>(p, AdamOptions(1e-2)); }},
      {"AdamW", [](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(1e-2)); }},
      {"RMSprop", [](auto p) { return std::make_unique<RMSprop>(p, RMSpropOptions(1e-3)); }},
      {"Adagrad", [](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(1e-2)); }}};
  return all;
}

// Compares with an explicit implementation: a float32 copy that the optimizer updates, rounded into the
// model.
TEST(MasterWeights, EqualsCopiesMadeByHandUnderAnyOptimizer) {
  at::set_num_threads(1);  // many small products
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const auto& [name, make] : optimizers()) {
      SCOPED_TRACE(name);
      auto ours = model();
      auto by_hand = model();
      cast_model(*ours, dtype, /*keep_batchnorm_fp32=*/true);
      cast_model(*by_hand, dtype, true);
      MasterWeights masters(*ours);
      const auto optimizer = make(masters.module().parameters());
      std::vector<at::Tensor> copies;
      for (const at::Tensor& p : by_hand->parameters())
        copies.push_back(p.detach().to(at::kFloat, false, /*copy=*/true));
      const auto reference = make(copies);
      const auto loss_of = [](torch::nn::Sequential& m, const at::Tensor& x) {
        return m->forward(x).to(at::kFloat).pow(2).mean();
      };
      for (int step = 0; step < 5; ++step) {
        const at::Tensor x = torch::randn({5, 6}).to(dtype);
        optimizer->zero_grad();
        loss_of(ours, x).backward();
        masters.take_gradients();
        optimizer->step();
        masters.write_back();

        by_hand->zero_grad();
        loss_of(by_hand, x).backward();
        const torch::NoGradGuard no_gradients;
        const auto parameters = by_hand->parameters();
        for (std::size_t i = 0; i < copies.size(); ++i)
          copies[i].mutable_grad() = parameters[i].grad().to(at::kFloat, false, true);
        reference->step();
        for (std::size_t i = 0; i < copies.size(); ++i) parameters[i].copy_(copies[i]);
      }
      const auto parameters = ours->parameters();
      for (std::size_t i = 0; i < copies.size(); ++i) {
        EXPECT_TRUE(at::equal(masters.module().parameters()[i], copies[i])) << i;
        EXPECT_TRUE(at::equal(parameters[i], by_hand->parameters()[i])) << i;
        EXPECT_TRUE(parameters[i].scalar_type() == at::kFloat || !parameters[i].grad().defined());
      }
    }
  }
}

// Updates below the low-precision dtype's resolution are lost without master weights, and accumulate with
// them.
TEST(MasterWeights, KeepsUpdatesThatTheModelCannotShow) {
  torch::nn::Linear layer(torch::nn::LinearOptions(1, 1).bias(false));
  layer->weight.data().fill_(1.0F);
  cast_model(*layer, at::kBFloat16, false);
  MasterWeights masters(*layer);
  torch::optim::SGD optimizer(masters.module().parameters(), 1e-3);
  for (int step = 0; step < 20; ++step) {
    layer->forward(torch::ones({1, 1}, at::kBFloat16)).sum().backward();
    masters.take_gradients();
    optimizer.step();
    masters.write_back();
  }
  EXPECT_NEAR(masters.module().parameters()[0].item<float>(), 0.98F, 1e-6);
  EXPECT_NEAR(layer->weight.item<float>(), 0.98F, 4e-3);
  EXPECT_LT(layer->weight.item<float>(), 1.0F);
}

struct Tied : torch::nn::Module {
  Tied() {
    embedding = register_module("embedding", torch::nn::Embedding(5, 3));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(3, 5).bias(false)));
    head->weight = head->register_parameter("tied", embedding->weight);
    frozen = register_parameter("frozen", torch::ones({2}), /*requires_grad=*/false);
    scale = register_parameter("scale", torch::ones({1}));
    steps = register_buffer("steps", torch::zeros({1}, at::kLong));
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear head{nullptr};
  at::Tensor frozen, scale, steps;
};

TEST(MasterWeights, ItsModuleHasTheModelsNamesAndSharing) {
  Tied tied;
  cast_model(tied, at::kHalf, false);
  tied.scale.set_data(tied.scale.to(at::kFloat));  // a float32 parameter from the start
  MasterWeights masters(tied);
  const auto ours = masters.module().named_parameters();
  const auto theirs = tied.named_parameters();
  ASSERT_EQ(ours.keys(), theirs.keys());
  EXPECT_TRUE(ours["embedding.weight"].is_same(ours["head.tied"]));
  EXPECT_TRUE(ours["scale"].is_same(tied.scale));
  EXPECT_EQ(ours["embedding.weight"].scalar_type(), at::kFloat);
  EXPECT_FALSE(ours["frozen"].requires_grad());
  EXPECT_TRUE(masters.module().named_buffers()["steps"].is_same(tied.steps));
  EXPECT_EQ(tied.steps.scalar_type(), at::kLong);
  EXPECT_TRUE(tied.embedding->weight.is_same(tied.head->weight));
}

TEST(MasterWeights, WorksUnderAScaler) {
  auto narrow = model();
  cast_model(*narrow, at::kHalf, true);
  MasterWeights masters(*narrow);
  torch::optim::SGD optimizer(masters.module().parameters(), 1e-2);
  GradScaler scaler({.init_scale = 1024});
  const at::Tensor before = masters.module().parameters()[0].clone();
  const auto step = [&](float factor) {
    optimizer.zero_grad();
    const at::Tensor loss =
        narrow->forward(torch::ones({3, 6}, at::kHalf)).to(at::kFloat).pow(2).sum() * factor;
    scaler.scale(loss).backward();
    masters.take_gradients();
    const bool stepped = scaler.step(optimizer);
    if (stepped) masters.write_back();
    scaler.update();
    return stepped;
  };
  EXPECT_FALSE(step(1e9F));  // beyond float16's range
  EXPECT_TRUE(at::equal(masters.module().parameters()[0], before));
  EXPECT_TRUE(step(1.0F));
  EXPECT_EQ(scaler.get_scale(), 512);
}

TEST(CastModel, KeepsBatchNormsAndNothingElse) {
  auto kept = model();
  cast_model(*kept, at::kHalf, /*keep_batchnorm_fp32=*/true);
  for (const auto& item : kept->named_parameters()) {
    EXPECT_EQ(item.value().scalar_type(), item.key().starts_with("1.") ? at::kFloat : at::kHalf)
        << item.key();
  }
  auto all = model();
  cast_model(*all, at::kHalf, false);
  for (const at::Tensor& p : all->parameters()) EXPECT_EQ(p.scalar_type(), at::kHalf);
  EXPECT_EQ(all->named_buffers()["1.running_mean"].scalar_type(), at::kHalf);
  EXPECT_EQ(all->named_buffers()["1.num_batches_tracked"].scalar_type(), at::kLong);
}

}  // namespace
}  // namespace rondo::master_weights_test
