#include "rondo/profile/plan_for.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/cost/step_plan.h"
#include "rondo/nn/optimizers/optimizer.h"
#include "rondo/nn/unit.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::plan_for_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::run_ranks;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 3; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), Unit<torch::nn::Linear>(32, 32)));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = torch::relu(layer(x));
    return x;
  }
  std::vector<Unit<torch::nn::Linear>> layers;
};
TORCH_MODULE(Net);

// Trains a custom loop by the plan of its own model.
TEST(PlanFor, PlansAndTrainsCustomModel) {
  run_ranks(2, "native", [](Context& context) {
    const Batch batch{{torch::randn({4, 32})}, {torch::randint(32, {4}, torch::kLong)}, 4};
    PlanForOptions options;
    options.time_limit = std::chrono::seconds(2);
    ShardedOptions sharded;
    sharded.plan_text = plan_for(context, as_model(Net().ptr()), batch, GiB(2), options);
    const auto plan = cost::parse_step_plan(nlohmann::ordered_json::parse(sharded.plan_text), "plan");
    std::vector<std::string> names;
    for (const auto& unit : plan.units) names.push_back(unit.name);
    EXPECT_EQ(names, (std::vector<std::string>{"layer0", "layer1", "layer2"}));
    const auto strategy = all_strategies().make("planned", context, sharded);
    Net net;
    const auto prepared = strategy->prepare(net.ptr());
    torch::optim::AdamW optimizer(prepared->module().parameters(), torch::optim::AdamWOptions(0.01));
    double first = 0, last = 0;
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      prepared->begin_step({.samples = 4, .gradients_are_read = false});
      const at::Tensor loss = torch::cross_entropy_loss(net(batch.input()), batch.target());
      loss.backward();
      prepared->finish_backward();
      prepared->step(optimizer);
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first);
    expect_facts(
        message_of<Error>([&] { plan_for(context, as_model(Net().ptr()), batch, Bytes{1000}, options); }),
        {"infeasible", "smallest"});
  });
}

// A model of one number from two inputs.
struct PairNetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return of_y(torch::relu(of_x(x)) + y); }
  Unit<torch::nn::Linear> of_x = register_module("of_x", Unit<torch::nn::Linear>(32, 8));
  Unit<torch::nn::Linear> of_y = register_module("of_y", Unit<torch::nn::Linear>(8, 1));
};
TORCH_MODULE(PairNet);

Batch pairs() { return {{torch::randn({6, 32}), torch::randn({6, 8})}, {torch::randn({6, 1})}, 6}; }

// On every engine: between hosts the profile includes real training steps.
TEST(PlanFor, ALossAndABatchOfSeveralTensors) {
  for (const char* const backend : {"native", "gloo"}) {
    run_ranks(2, backend, [](Context& context) {
      PlanForOptions options;
      options.loss = make_loss("mse");
      options.time_limit = std::chrono::seconds(1);
      const std::string text = plan_for(context, as_model(PairNet().ptr()), pairs(), GiB(1), options);
      const auto plan = cost::parse_step_plan(nlohmann::ordered_json::parse(text), "plan");
      EXPECT_EQ(plan.units.size(), 2U);
      EXPECT_EQ(plan.schedule->batch_size, 6U);
    });
  }
}

TEST(PlanFor, WhatCannotBeMeasuredIsNamed) {
  run_ranks(2, "native", [](Context& context) {
    expect_facts(
        message_of<UsageError>([&] { plan_for(context, as_model(PairNet().ptr()), pairs(), GiB(1)); }),
        {"cross_entropy", "int64"});
    Batch none = pairs();
    none.samples = 0;
    expect_facts(message_of<UsageError>([&] {
                   plan_for(context, as_model(PairNet().ptr()), none, GiB(1), {.loss = make_loss("mse")});
                 }),
                 {"Batch::samples", "0"});
  });
}

}  // namespace
}  // namespace rondo::plan_for_test
