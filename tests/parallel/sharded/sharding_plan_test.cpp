#include "rondo/parallel/sharded/sharding_plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "rondo/base/error.h"

namespace rondo {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kUnits = {"root", "h.0", "h.1"};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Json plan_of(const std::map<std::string, std::string>& units) {
  Json plan = {{"units", Json::array()}};
  for (const auto& [name, strategy] : units)
    plan["units"].push_back({{"name", name}, {"strategy", strategy}});
  return plan;
}

TEST(ShardingPlan, AssignsByUnit) {
  const ShardingPlan plan =
      ShardingPlan::from_json(plan_of({{"h.0", "zero2"}, {"h.1", "fsdp"}, {"root", "ddp"}}), "p");
  EXPECT_EQ(plan.assign(kUnits), (std::vector{Sharding::ddp, Sharding::zero2, Sharding::zero3}));
}

TEST(ShardingPlan, NamesUnitsLeftOutAndUnitsUnknown) {
  const ShardingPlan plan =
      ShardingPlan::from_json(plan_of({{"h.0", "zero2"}, {"h.7", "ddp"}}), "plan p.json");
  const std::string error = error_of([&] { plan.assign(kUnits); });
  EXPECT_NE(error.find("names units that the model does not have: h.7"), std::string::npos) << error;
  EXPECT_NE(error.find("leaves out units of the model: root, h.1"), std::string::npos) << error;
}

TEST(ShardingPlan, SaysWhatIsWrongWithAFile) {
  const auto error = [](const Json& plan) {
    return error_of([&] { ShardingPlan::from_json(plan, "plan p.json"); });
  };
  EXPECT_NE(error(Json::array()).find("a list \"units\""), std::string::npos);
  EXPECT_NE(error({{"units", Json::array()}}).find("a list \"units\""), std::string::npos);
  EXPECT_NE(error({{"units", {{{"name", 3}}}}}).find("an entry of \"units\" is {\"name\":3}"),
            std::string::npos);
  EXPECT_NE(error(plan_of({{"h.0", "zero4"}})).find("unit 'h.0': unknown strategy 'zero4'"),
            std::string::npos);
  EXPECT_NE(error({{"units", {{{"name", "a"}, {"strategy", "ddp"}}, {{"name", "a"}, {"strategy", "ddp"}}}}})
                .find("unit 'a' has two entries"),
            std::string::npos);
  EXPECT_NE(error_of([] { ShardingPlan::read("/nowhere/plan.json"); }).find("cannot be read"),
            std::string::npos);
}

TEST(ShardingPlan, DrawsTheSameForASeed) {
  const std::vector<std::string> many(200, "unit");
  EXPECT_EQ(ShardingPlan::random(7).assign(many), ShardingPlan::random(7).assign(many));
  EXPECT_NE(ShardingPlan::random(7).assign(many), ShardingPlan::random(8).assign(many));
  const std::vector<Sharding> drawn = ShardingPlan::random(7).assign(many);
  for (const Sharding sharding : cost::kStrategies) {
    EXPECT_NE(std::find(drawn.begin(), drawn.end(), sharding), drawn.end()) << cost::name(sharding);
  }
}

}  // namespace
}  // namespace rondo
