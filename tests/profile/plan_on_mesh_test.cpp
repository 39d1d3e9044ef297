// Tests of a mesh plan's options for each strategy.
#include "rondo/profile/plan_of_profile.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::plan_on_mesh_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::run_ranks;

PlanOnMesh plan_of(const std::string& mesh, int ranks) {
  PlanOnMesh plan;
  plan.text = "as it was written";
  plan.step.source = "plan plan.json";
  plan.step.ranks = ranks;
  plan.step.mesh = mesh;
  plan.step.units = {{.name = "0", .choice = {cost::Strategy::zero1, true}, .parameter_bytes = {}},
                     {.name = "1", .choice = {cost::Strategy::ddp, false}, .parameter_bytes = {}}};
  if (mesh.find("pipeline") != std::string::npos) {
    plan.step.pipeline = cost::PlannedPipeline{.schedule = "interleaved",
                                               .micro_batches = 4,
                                               .chunks = 2,
                                               .stage_cuts = {"1", "2", "3"},
                                               .strategies = {cost::Strategy::zero1, cost::Strategy::ddp}};
  }
  plan.mesh = mesh_of_plan(plan.step, ranks);
  return plan;
}

TEST(PlanOnMesh, LiesOnTheMeshOfThePlan) {
  EXPECT_EQ(to_string(plan_of("tensor=2,pipeline=2", 4).mesh), "pipeline=2,data=1,tensor=2");
  EXPECT_TRUE(plan_of("", 4).mesh.empty());
  const PlanOnMesh plan = plan_of("pipeline=2", 2);
  expect_facts(message_of<UsageError>([&] { mesh_of_plan(plan.step, 4); }), {"plan plan.json", "2", "4"});
}

TEST(PlanOnMesh, UsesStrategyOfRanksThatShareParameters) {
  const std::pair<const char*, const char*> asked[] = {{"data=8", "planned"},
                                                       {"pipeline=8", "pipeline"},
                                                       {"tensor=8", "tensor"},
                                                       {"pipeline=4,data=2", "planned"},
                                                       {"data=2,tensor=4", "planned"},
                                                       {"context=8", "planned"},
                                                       {"pipeline=4,context=2", "planned"},
                                                       {"expert=8", "ddp"},
                                                       {"pipeline=4,expert=2", "ddp"},
                                                       {"pipeline=4,tensor=2", "pipeline"}};
  for (const auto& [mesh, strategy] : asked) EXPECT_EQ(plan_of(mesh, 8).strategy_on_mesh(), strategy) << mesh;
}

TEST(PlanOnMesh, TellsThePipelineHowItIsCut) {
  const OptionValues expected = {{"pipeline-schedule", "interleaved"},
                                 {"micro-batches", "4"},
                                 {"stage-cuts", "1,2,3"},
                                 {"pipeline-chunks", "2"}};
  EXPECT_EQ(plan_of("pipeline=2,data=2", 4).pipeline_options(), expected);
  EXPECT_TRUE(plan_of("data=2,tensor=2", 4).pipeline_options().empty());
  PlanOnMesh plan = plan_of("pipeline=2", 2);
  plan.step.pipeline->schedule = "1f1b";
  EXPECT_FALSE(plan.pipeline_options().contains("pipeline-chunks")) << "of interleaved alone";
}

TEST(PlanOnMesh, TellsEachRankAlongDataItsUnits) {
  run_ranks(4, "native", [](Context& context) {
    const auto told = [&](const std::string& mesh) {
      const PlanOnMesh plan = plan_of(mesh, 4);
      return nlohmann::json::parse(plan.text_along_data(context.mesh(plan.mesh))).at("units");
    };
    // In a pipeline each rank's stages are one unit.
    const nlohmann::json stage = told("pipeline=2,data=2");
    ASSERT_EQ(stage.size(), 1U);
    EXPECT_EQ(stage[0].at("name"), kRootUnit);
    EXPECT_EQ(stage[0].at("strategy"), context.rank() < 2 ? "zero1" : "ddp");
    const nlohmann::json units = told("data=2,context=2");
    ASSERT_EQ(units.size(), 2U);
    EXPECT_EQ(units[0], nlohmann::json({{"name", "0"}, {"strategy", "zero1"}, {"checkpoint", true}}));
    EXPECT_EQ(units[1].at("checkpoint"), false);
    const PlanOnMesh along_data = plan_of("", 4);
    EXPECT_EQ(along_data.text_along_data(context), along_data.text);
  });
}

TEST(PlanOnMesh, CheckpointsUnitsWhereNoStrategyDoes) {
  torch::nn::Sequential layers;
  for (int i = 0; i < 2; ++i) layers->push_back(std::to_string(i), Unit<torch::nn::Linear>(4, 4));
  const auto checkpointed = [&] {
    std::vector<bool> result;
    for (const UnitState* unit : units_of(*layers)) result.push_back(unit->checkpointed());
    return result;
  };
  plan_of("", 2).checkpoint_units(*layers);
  EXPECT_EQ(checkpointed(), (std::vector<bool>{false, false})) << "strategy planned does it";
  plan_of("pipeline=2", 2).checkpoint_units(*layers);
  EXPECT_EQ(checkpointed(), (std::vector<bool>{true, false}));
}

// End to end: the plan's text reaches strategy "planned" of the ranks along data.
TEST(PlanOnMesh, PlannedDoesWhatTheTextSays) {
  run_ranks(2, "native", [](Context& context) {
    const PlanOnMesh plan = plan_of("context=2", 2);
    const Context meshed = context.mesh(plan.mesh);
    const StrategyRegistry strategies = with_plan(all_strategies(), plan.text_along_data(meshed));
    const auto strategy = strategies.make("planned", context, OptionValues());
    static std::mutex mutex;  // the default generator is shared
    torch::nn::Sequential layers;
    {
      const std::lock_guard lock(mutex);
      for (int i = 0; i < 2; ++i) layers->push_back(std::to_string(i), Unit<torch::nn::Linear>(64, 64));
    }
    const auto prepared = strategy->prepare(layers.ptr());
    for (const Shard& shard : prepared->parts().shards()) {
      // A bias may be on one of the ranks as a whole.
      if (shard.name.ends_with(".weight")) {
        EXPECT_EQ(shard.elements() == 64 * 64, shard.name == "1.weight") << shard.name << ": zero1, and ddp";
      }
    }
    barrier(context.world());
  });
}

}  // namespace
}  // namespace rondo::plan_on_mesh_test
