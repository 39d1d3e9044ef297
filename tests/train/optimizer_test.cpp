#include "rondo/nn/optimizers/optimizer.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <sstream>

#include "rondo/base/error.h"
#include "rondo/nn/optimizers/fused_adam.h"
#include "rondo/nn/optimizers/optimizer_options.h"
#include "rondo/strategy/group_rates.h"
#include "tests/errors.h"

namespace rondo::optimizer_test {
namespace {

torch::nn::Sequential small_model() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(7, 33), torch::nn::ReLU(), torch::nn::Linear(33, 3));
}

// Trains twenty steps on data that does not depend on the optimizer.
void train(torch::nn::Sequential& model, torch::optim::Optimizer& optimizer) {
  for (int step = 0; step < 20; ++step) {
    torch::manual_seed(100 + step);
    optimizer.zero_grad();
    model->forward(torch::randn({16, 7})).pow(2).mean().backward();
    optimizer.step();
  }
}

void expect_close(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  const auto left = a->parameters();
  const auto right = b->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(torch::allclose(left[i], right[i], 1e-5, 1e-6)) << (left[i] - right[i]).abs().max();
  }
}

template <class Fused, class Plain, class Options>
void compare_with_libtorch(const Options& options) {
  auto model = small_model();
  auto reference = small_model();
  Fused fused(model->parameters(), options);
  Plain plain(reference->parameters(), options);
  train(model, fused);
  train(reference, plain);
  expect_close(model, reference);
}

TEST(FusedAdamW, EqualsLibtorchsAdamW) {
  compare_with_libtorch<FusedAdamW, torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  compare_with_libtorch<FusedAdamW, torch::optim::AdamW>(
      torch::optim::AdamWOptions(1e-2).betas({0.8, 0.95}).eps(1e-6).amsgrad(true));
}

TEST(FusedAdam, EqualsLibtorchsAdam) {
  compare_with_libtorch<FusedAdam, torch::optim::Adam>(torch::optim::AdamOptions(1e-2).weight_decay(0.1));
  compare_with_libtorch<FusedAdam, torch::optim::Adam>(torch::optim::AdamOptions(1e-2).amsgrad(true));
}

TEST(FusedAdamW, ReadsTheStateThatLibtorchsAdamWSaved) {
  const auto options = torch::optim::AdamWOptions(1e-2).weight_decay(0.1);
  auto model = small_model();
  auto reference = small_model();
  torch::optim::AdamW first(model->parameters(), options);
  torch::optim::AdamW plain(reference->parameters(), options);
  train(model, first);
  train(reference, plain);

  std::stringstream archive;
  torch::save(first, archive);
  FusedAdamW second(model->parameters(), options);
  torch::load(second, archive);
  train(model, second);
  train(reference, plain);
  expect_close(model, reference);
}

TEST(FusedAdamW, LeavesParametersWithoutGradientAlone) {
  auto model = small_model();
  FusedAdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
  const auto parameters = model->parameters();
  const at::Tensor before = parameters[1].detach().clone();
  parameters[0].mutable_grad() = torch::ones_like(parameters[0]);
  optimizer.step();
  EXPECT_TRUE(torch::equal(parameters[1], before));
  EXPECT_EQ(optimizer.state().size(), 1U);
}

TEST(MakeOptimizer, CommandLinesKnowEachByName) {
  EXPECT_EQ(std::vector<std::string>(std::begin(kOptimizerNames), std::end(kOptimizerNames)),
            optimizer_names());
}

TEST(MakeOptimizer, MakesEachByNameWithItsOptions) {
  auto model = small_model();
  for (const std::string& name : optimizer_names()) {
    auto optimizer = make_optimizer({.name = name, .learning_rate = 0.25, .weight_decay = 0.5}, *model);
    EXPECT_DOUBLE_EQ(optimizer->param_groups()[0].options().get_lr(), 0.25) << name;
    GroupRates(*optimizer).set(*optimizer, 0.125);
    EXPECT_DOUBLE_EQ(optimizer->param_groups()[0].options().get_lr(), 0.125) << name;
  }
  auto adamw = make_optimizer({.name = "adamw", .weight_decay = 0.0}, *model);
  EXPECT_EQ(static_cast<torch::optim::AdamWOptions&>(adamw->param_groups()[0].options()).weight_decay(), 0.0);
}

// A head that learns ten times as fast, and a frozen part.
TEST(GroupRates, KeepTheProportionsOfParameterGroups) {
  auto model = small_model();
  const auto parameters = model->parameters();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  const double rates[] = {0.0, 0.1, 1.0};
  for (std::size_t i = 0; i < 3; ++i) {
    groups.emplace_back(std::vector<at::Tensor>{parameters[i]},
                        std::make_unique<torch::optim::SGDOptions>(rates[i]));
  }
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(0.5));
  const auto rate = [&](std::size_t group) { return optimizer.param_groups()[group].options().get_lr(); };
  const GroupRates made(optimizer);
  EXPECT_DOUBLE_EQ(rate_of(optimizer), 0.1);
  for (const double now : {0.05, 0.0, 0.2}) {
    made.set(optimizer, now);
    EXPECT_DOUBLE_EQ(rate(0), 0);
    EXPECT_DOUBLE_EQ(rate(1), now);
    EXPECT_DOUBLE_EQ(rate(2), 10 * now);
    EXPECT_DOUBLE_EQ(rate_of(optimizer), now);
  }
  // Rates that are all zero have no proportions.
  for (auto& group : optimizer.param_groups()) group.options().set_lr(0);
  GroupRates(optimizer).set(optimizer, 0.25);
  EXPECT_DOUBLE_EQ(rate(0), 0.25);
  EXPECT_DOUBLE_EQ(rate(2), 0.25);
}

TEST(MakeOptimizer, RejectsWhatCannotBe) {
  auto model = small_model();
  testing::expect_facts(testing::message_of<UsageError>([&] { make_optimizer({.name = "adamax"}, *model); }),
                        {"'adamax'", "adagrad", "adam", "adamw", "lamb", "lars", "lion", "sgd"});
  EXPECT_THROW(make_optimizer({.learning_rate = -0.1}, *model), UsageError);
  EXPECT_THROW(make_optimizer({.weight_decay = -0.1}, *model), UsageError);
  EXPECT_THROW(make_optimizer({.beta1 = 1.0}, *model), UsageError);
}

}  // namespace
}  // namespace rondo::optimizer_test
