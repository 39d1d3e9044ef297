#include "rondo/parallel/sharded/sharding_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<UnitSize> kUnits = {{"root", 100}, {"h.0", 200}, {"h.1", 200}};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Json short_form(const std::map<std::string, std::string>& units) {
  Json plan = {{"units", Json::array()}};
  for (const auto& [name, strategy] : units)
    plan["units"].push_back({{"name", name}, {"strategy", strategy}});
  return plan;
}

ShardingPlan plan_of(const Json& json) { return {cost::parse_plan_file(json, "p"), "plan p.json"}; }

TEST(ShardingPlan, AssignsByUnit) {
  const ShardingPlan plan = plan_of(short_form({{"h.0", "zero2"}, {"h.1", "fsdp"}, {"root", "ddp"}}));
  EXPECT_EQ(plan.assign(kUnits, 2), (std::vector{Sharding::ddp, Sharding::zero2, Sharding::zero3}));
}

TEST(ShardingPlan, NamesUnitsLeftOutAndUnitsUnknown) {
  const ShardingPlan plan = plan_of(short_form({{"h.0", "zero2"}, {"h.7", "ddp"}}));
  const std::string error = error_of([&] { plan.assign(kUnits, 2); });
  EXPECT_NE(error.find("names units that the model does not have: h.7"), std::string::npos) << error;
  EXPECT_NE(error.find("leaves out units of the model: root, h.1"), std::string::npos) << error;
}

TEST(ShardingPlan, NamesAnotherNumberOfRanksAndOtherSizes) {
  Json json = short_form({{"h.0", "zero2"}, {"h.1", "zero3"}, {"root", "ddp"}});
  json["ranks"] = 4;
  json["units"][0]["parameter_bytes"] = 300;
  const ShardingPlan plan = plan_of(json);
  EXPECT_NE(error_of([&] { plan.assign(kUnits, 2); }).find("was made for 4 ranks, and this job has 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { plan.assign(kUnits, 4); }).find("h.0 (300 B in the plan, 200 B in the model)"),
            std::string::npos)
      << error_of([&] { plan.assign(kUnits, 4); });
}

TEST(ShardingPlan, DrawsTheSameForASeed) {
  const std::vector<UnitSize> many(200, {"unit", 1});
  EXPECT_EQ(ShardingPlan::random(7).assign(many, 2), ShardingPlan::random(7).assign(many, 2));
  EXPECT_NE(ShardingPlan::random(7).assign(many, 2), ShardingPlan::random(8).assign(many, 2));
  const std::vector<Sharding> drawn = ShardingPlan::random(7).assign(many, 2);
  for (const Sharding sharding : cost::kStrategies) {
    EXPECT_NE(std::find(drawn.begin(), drawn.end(), sharding), drawn.end()) << cost::name(sharding);
  }
}

}  // namespace
}  // namespace rondo
