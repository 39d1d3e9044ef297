#include "rondo/parallel/sharded/unit_plans.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::unit_fusion_test {
namespace {

std::vector<std::string> names_of(const std::vector<UnitGroup>& groups) {
  std::vector<std::string> names;
  for (const UnitGroup& group : groups) names.push_back(group.unit.name);
  return names;
}

// Returns the groups of the root and four layers of 7 x 7 + 7 + 7 doubles each. A shift that two
// layers share belongs to the root.
std::vector<std::string> joined(Bytes most,
                                std::vector<Sharding> shardings = std::vector(5, Sharding::zero3)) {
  Layers model;
  std::vector<ModelUnit> units = partition_into_units(*model);
  EXPECT_EQ(units.size(), shardings.size());
  return names_of(join_small_units(std::move(units), shardings, most));
}

TEST(JoinSmallUnits, JoinsNeighboursUpToTheSize) {
  const std::vector<std::string> apart = {"root", "layer0", "layer1", "layer2", "layer3"};
  EXPECT_EQ(joined({}), apart);
  EXPECT_EQ(joined(Bytes{503}), apart);
  EXPECT_EQ(joined(Bytes{1100}), (std::vector<std::string>{"root", "layer0+layer1", "layer2+layer3"}));
  EXPECT_EQ(joined(MiB(1)), (std::vector<std::string>{"root", "layer0+layer1+layer2+layer3"}));
}

TEST(JoinSmallUnits, JoinsWhatHasOneStrategyOnly) {
  const Sharding a = Sharding::zero3;
  const Sharding b = Sharding::zero1;
  EXPECT_EQ(joined(MiB(1), {a, a, a, b, b}),
            (std::vector<std::string>{"root", "layer0+layer1", "layer2+layer3"}));
  EXPECT_EQ(joined(MiB(1), {a, a, b, a, b}).size(), 5U);
}

struct Outcome {
  std::vector<at::Tensor> weights;
  std::size_t messages = 0;
};

// Trains over Gloo between three hosts with one rank each.
Outcome train(const std::string& strategy_name, Bytes fuse_bytes) {
  std::mutex mutex;
  Outcome outcome;
  ShardedOptions options;
  options.find_unused_parameters = true;
  options.fuse_bytes = fuse_bytes;
  run_ranks(3, "hierarchical(native, gloo)",
            [&](Context& context) {
              const auto strategy = testing::make_strategy(strategy_name, context, options);
              Layers model;
              const auto prepared = strategy->prepare(model.ptr());
              const auto optimizer = make_adamw(prepared->module());
              std::size_t messages = 0;
              for (int step = 0; step < 5; ++step) {
                optimizer->zero_grad();
                const Batch batch =
                    rows(joint_batch(12, static_cast<std::uint64_t>(step)), context.rank() * 4, 4);
                prepared->begin_step({.samples = 4, .gradients_are_read = step % 2 == 1});
                mean_loss(model(batch.input), batch).backward();
                prepared->finish_backward();
                prepared->step(*optimizer);
                messages += prepared->communication_spans().size();
              }
              prepared->unshard();
              if (context.rank() > 0) return barrier(context.world());
              const std::lock_guard lock(mutex);
              for (const at::Tensor& parameter : model->parameters())
                outcome.weights.push_back(parameter.detach().clone());
              outcome.messages = messages;
              barrier(context.world());
            },
            std::chrono::seconds(60), {0, 1, 2});
  return outcome;
}

// Sums are formed elementwise in the order of hosts, so the layout changes no bit.
TEST(TensorFusion, FewerMessagesAndTheSameBits) {
  for (const std::string strategy : {"zero3", "zero2", "ddp"}) {
    const Outcome apart = train(strategy, {});
    const Outcome together = train(strategy, KiB(1));
    EXPECT_LT(together.messages, apart.messages * 3 / 4) << strategy;
    EXPECT_EQ(largest_difference(together.weights, apart.weights), 0) << strategy;
  }
}

}  // namespace
}  // namespace rondo::testing::unit_fusion_test
