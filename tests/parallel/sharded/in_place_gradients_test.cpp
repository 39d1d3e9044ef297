// Gradients that are reduced in place pass through the model's queue, as copied ones do.
#include <gtest/gtest.h>

#include <set>

#include "rondo/nn/unit_state.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::in_place_gradients_test {
namespace {

class InPlaceGradients : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(InPlaceGradients, TravelThroughTheModelsQueueInAnyOrder) {
  const std::string& strategy_name = std::get<0>(GetParam());
  ShardedOptions options;
  options.schedule = std::get<1>(GetParam());
  options.schedule_seed = 7;
  options.find_unused_parameters = true;
  const TrainingPlan plan;
  const std::vector<at::Tensor> alone = train_alone(plan);
  run_ranks(2, "native", [&](Context& context) {
    const auto strategy = testing::make_strategy(strategy_name, context, options);
    Layers model;
    const auto prepared = strategy->prepare(model.ptr());
    const auto optimizer = make_adamw(prepared->module());
    train_steps(context, *prepared, model, *optimizer, plan);
    std::set<std::string> units;
    for (const TraceSpan& span : prepared->communication_spans()) {
      if (span.name != "all_reduce") continue;
      EXPECT_GT(span.bytes, 0U);
      EXPECT_GE(span.end_ns, span.begin_ns);
      units.insert(span.unit);
    }
    EXPECT_EQ(units, (std::set<std::string>{kRootUnit, "layer0", "layer1", "layer2", "layer3"}));
    prepared->unshard();
    std::vector<at::Tensor> weights;
    for (const at::Tensor& parameter : model->parameters()) weights.push_back(parameter.detach());
    EXPECT_LT(largest_difference(weights, alone), 1e-12);
    barrier(context.world());
  });
}

INSTANTIATE_TEST_SUITE_P(StrategiesAndSchedules, InPlaceGradients,
                         ::testing::Combine(::testing::Values("zero1", "zero2", "zero3"),
                                            ::testing::Values("fifo", "priority", "random")));

}  // namespace
}  // namespace rondo::testing::in_place_gradients_test
