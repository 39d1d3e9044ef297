#include "rondo/precision/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>

#include "rondo/base/error.h"
#include "tests/backend/ranks.h"

namespace rondo::grad_scaler_test {
namespace {

using nlohmann::json;
using testing::run_ranks;
using torch::optim::SGD;

json reference() {
  std::ifstream file(std::string(RONDO_SOURCE_DIR) + "/tests/precision/torch_amp_reference.json");
  return json::parse(file);
}

GradScaler::Options options_of(const json& given) {
  GradScaler::Options options;
  options.init_scale = given.value("init_scale", options.init_scale);
  options.growth_factor = given.value("growth_factor", options.growth_factor);
  options.backoff_factor = given.value("backoff_factor", options.backoff_factor);
  options.growth_interval = given.value("growth_interval", options.growth_interval);
  return options;
}

float gradient_of(const json& word) {
  if (word.is_null()) return NAN;
  return word == "inf" ? INFINITY : word.get<float>();
}

at::Tensor parameter(std::initializer_list<float> values, at::ScalarType dtype = at::kFloat) {
  return torch::tensor(std::vector<float>(values)).to(dtype).requires_grad_(true);
}

// Runs backward of a loss whose gradient with respect to `weight` is `gradient`.
void backward(GradScaler& scaler, const at::Tensor& weight, const at::Tensor& gradient) {
  scaler.scale((weight * gradient).sum()).backward();
}

TEST(GradScaler, FollowsPyTorchStepByStep) {
  const json all = reference();
  for (const json& training : all.at("grad_scaler")) {
    at::Tensor weight = parameter({1.0F, -2.0F});
    SGD optimizer({weight}, /*lr=*/0.5);
    GradScaler scaler(options_of(training.at("options")));
    int number = 0;
    for (const json& step : training.at("steps")) {
      SCOPED_TRACE(step.dump());
      optimizer.zero_grad();
      backward(scaler, weight, torch::tensor({gradient_of(step.at("gradient")), 0.25F}));
      if (number++ % 2 == 1) scaler.unscale_(optimizer);
      scaler.step(optimizer);
      scaler.update(step.at("gradient") == 7.0 ? std::optional<double>(16.0) : std::nullopt);
      EXPECT_EQ(scaler.state_dict(), step.at("state"));
      EXPECT_EQ(weight[0].item<double>(), step.at("weight").at(0).get<double>());
      EXPECT_EQ(weight[1].item<double>(), step.at("weight").at(1).get<double>());
    }
  }
}

TEST(GradScaler, StateGoesOnWhereItWasSaved) {
  const auto train = [](GradScaler& scaler, at::Tensor& weight, int steps) {
    SGD optimizer({weight}, 0.5);
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      backward(scaler, weight, torch::ones({1}));
      scaler.step(optimizer);
      scaler.update();
    }
  };
  const GradScaler::Options options{.init_scale = 4, .growth_interval = 3};
  at::Tensor weight = parameter({1.0F});
  GradScaler straight(options);
  train(straight, weight, 5);
  EXPECT_EQ(straight.get_scale(), 8);
  EXPECT_EQ(straight.state_dict().at("_growth_tracker"), 2);

  GradScaler saved(options);
  train(saved, weight, 2);
  GradScaler fresh;
  fresh.load_state_dict(json::parse(saved.state_dict().dump()));
  EXPECT_EQ(fresh.state_dict(), saved.state_dict());
  train(fresh, weight, 3);
  EXPECT_EQ(fresh.state_dict(), straight.state_dict());
  fresh.load_state_dict(saved.state_dict());  // also into a used scaler
  EXPECT_EQ(fresh.state_dict(), saved.state_dict());
}

TEST(GradScaler, UnscalesEveryKindOfGradient) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    at::Tensor weight = parameter({1.0F, 2.0F, 3.0F, 4.0F}, dtype);
    at::Tensor without = parameter({1.0F}, dtype);
    SGD optimizer({weight, without}, 1.0);
    GradScaler scaler({.init_scale = 1024});
    backward(scaler, weight, torch::tensor({0.5F, 1.0F, 1.5F, 2.0F}).to(dtype));
    scaler.unscale_(optimizer);
    EXPECT_FALSE(scaler.found_inf(optimizer));
    EXPECT_TRUE(at::equal(weight.grad(), torch::tensor({0.5F, 1.0F, 1.5F, 2.0F}).to(dtype))) << dtype;
    EXPECT_FALSE(without.grad().defined());
  }
  // A transposed gradient, and a sparse one with a repeated index.
  at::Tensor matrix = torch::ones({2, 3}).requires_grad_(true);
  at::Tensor table = torch::ones({4, 2}).requires_grad_(true);
  SGD optimizer({matrix, table}, 1.0);
  GradScaler scaler({.init_scale = 2});
  scaler.scale((matrix.t() * torch::arange(6.0).view({3, 2})).sum()).backward();
  scaler.scale(at::embedding(table, torch::tensor({1, 1, 3}), -1, false, /*sparse=*/true).sum()).backward();
  ASSERT_TRUE(table.grad().is_sparse());
  scaler.unscale_(optimizer);
  EXPECT_TRUE(at::equal(matrix.grad(), torch::arange(6.0).view({3, 2}).t()));
  EXPECT_TRUE(at::equal(table.grad().to_dense(),
                        torch::tensor({0., 0., 2., 2., 0., 0., 1., 1.}).view({4, 2}).to(at::kFloat)));
}

TEST(GradScaler, TwoOptimizersSkipSeparatelyAndShareTheScale) {
  at::Tensor a = parameter({1.0F});
  at::Tensor b = parameter({1.0F});
  SGD first({a}, 1.0);
  SGD second({b}, 1.0);
  GradScaler scaler({.init_scale = 8});
  const std::vector<at::Tensor> losses = scaler.scale(std::vector<at::Tensor>{a.sum(), (b * NAN).sum()});
  losses[0].backward();
  losses[1].backward();
  EXPECT_TRUE(scaler.step(first));
  EXPECT_FALSE(scaler.step(second));
  scaler.update();
  EXPECT_EQ(a.item<float>(), 0.0F);
  EXPECT_EQ(b.item<float>(), 1.0F);
  EXPECT_EQ(scaler.get_scale(), 4);
}

TEST(GradScaler, AllSkipBadGradientOfOneRank) {
  run_ranks(3, "native", [](Context& context) {
    // Parts of a sharded model: each rank optimises another part, and the last has none.
    at::Tensor part = parameter({1.0F});
    const bool last = context.rank() == 2;
    std::vector<at::Tensor> parameters;
    if (!last)
      parameters.push_back(part);
    else
      parameters.push_back(parameter({5.0F}));  // without a gradient
    SGD optimizer(parameters, 1.0);
    GradScaler scaler({.init_scale = 16}, context.world());
    const auto train = [&](bool bad) {
      optimizer.zero_grad();
      const float gradient = bad && context.rank() == 1 ? INFINITY : 0.5F;
      const at::Tensor loss = scaler.scale((part * gradient).sum());
      if (!last) loss.backward();
      const bool stepped = scaler.step(optimizer);
      scaler.update();
      return stepped;
    };
    EXPECT_TRUE(train(false));
    EXPECT_FALSE(train(true));
    EXPECT_EQ(scaler.get_scale(), 8);
    EXPECT_TRUE(train(false));
    EXPECT_FLOAT_EQ(part.item<float>(), last ? 1.0F : 0.0F);
    EXPECT_EQ(scaler.state_dict().at("_growth_tracker"), 1);
  });
}

TEST(GradScaler, NotEnabledDoesNothing) {
  at::Tensor weight = parameter({1.0F});
  SGD optimizer({weight}, 1.0);
  GradScaler scaler({.enabled = false});
  EXPECT_EQ(scaler.get_scale(), 1.0);
  EXPECT_EQ(scaler.state_dict(), json::object());
  backward(scaler, weight, torch::full({1}, NAN));
  scaler.unscale_(optimizer);
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_TRUE(std::isnan(weight.item<float>()));
  scaler.load_state_dict({});
}

template <class Call>
void expect_usage_error(const Call& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error with '" << part << "'";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(GradScaler, NamesCallsOutOfOrder) {
  at::Tensor weight = parameter({1.0F});
  SGD optimizer({weight}, 1.0);
  GradScaler scaler;
  expect_usage_error([&] { scaler.unscale_(optimizer); }, "unscale_() before any loss was scaled");
  expect_usage_error([&] { scaler.step(optimizer); }, "step() before any loss was scaled");
  expect_usage_error([&] { scaler.update(); }, "update() before any loss was scaled");
  const at::Tensor loss = scaler.scale(weight.sum());
  expect_usage_error([&] { scaler.update(); }, "update() before any step()");
  expect_usage_error([&] { scaler.step(optimizer); }, "no parameter of this optimizer has a gradient");
  loss.backward();
  scaler.unscale_(optimizer);
  expect_usage_error([&] { scaler.unscale_(optimizer); }, "already called for this optimizer");
  scaler.step(optimizer);
  expect_usage_error([&] { scaler.step(optimizer); }, "step() was already called");
  expect_usage_error([&] { scaler.unscale_(optimizer); }, "called after step()");
  expect_usage_error([&] { scaler.update(0.0); }, "must be above 0");
  scaler.update();
  backward(scaler, weight, torch::ones({1}));
  EXPECT_TRUE(scaler.step(optimizer));
}

TEST(GradScaler, RefusesFloat16GradientsAndBadNumbers) {
  at::Tensor narrow = parameter({1.0F}, at::kHalf);
  SGD optimizer({narrow}, 1.0);
  GradScaler scaler;
  narrow.mutable_grad() = torch::ones({1}, at::kHalf);
  scaler.scale(torch::ones({1}));
  expect_usage_error([&] { scaler.unscale_(optimizer); }, "master weights");
  expect_usage_error([] { GradScaler({.growth_factor = 1.0}); }, "growth_factor 1");
  expect_usage_error([] { GradScaler({.backoff_factor = 1.0}); }, "backoff_factor 1");
  expect_usage_error([] { GradScaler({.init_scale = NAN}); }, "init_scale nan");
  expect_usage_error([] { GradScaler({.growth_interval = 0}); }, "growth_interval 0");
  EXPECT_THROW(scaler.load_state_dict(json::object()), DataError);
  EXPECT_THROW(scaler.load_state_dict({{"scale", 2.0}}), DataError);
  json state = scaler.state_dict();
  state["backoff_factor"] = 3;
  EXPECT_THROW(scaler.load_state_dict(state), DataError);
  EXPECT_EQ(scaler.get_scale(), 65536.0);
}

}  // namespace
}  // namespace rondo::grad_scaler_test
