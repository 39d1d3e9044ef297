#include "rondo/parallel/sharded/unit_plans.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::unit_plans_test {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<cost::PlannedUnit> kUnits = {{"root", {}, 100}, {"h.0", {}, 200}, {"h.1", {}, 200}};

std::vector<Sharding> strategies(const PlanMaker& make_plan, const std::vector<cost::PlannedUnit>& units) {
  const cost::StepPlan plan = make_plan(units, 2);
  std::vector<Sharding> result;
  for (const cost::PlannedUnit& unit : units) result.push_back(plan.find(unit.name)->choice.strategy);
  return result;
}

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

PlanMaker plan_of(const Json& json) { return given_plan(cost::parse_step_plan(json, "plan p.json")); }

TEST(UnitPlans, AssignsByUnit) {
  const PlanMaker plan = plan_of(short_form({{"h.0", "zero2"}, {"h.1", "fsdp"}, {"root", "ddp"}}));
  EXPECT_EQ(strategies(plan, kUnits), (std::vector{Sharding::ddp, Sharding::zero2, Sharding::zero3}));
}

TEST(UnitPlans, NamesUnitsLeftOutAndUnitsUnknown) {
  const PlanMaker plan = plan_of(short_form({{"h.0", "zero2"}, {"h.7", "ddp"}}));
  const std::string error = error_of([&] { plan(kUnits, 2); });
  EXPECT_NE(error.find("names units that the model does not have: h.7"), std::string::npos) << error;
  EXPECT_NE(error.find("leaves out units of the model: root, h.1"), std::string::npos) << error;
}

TEST(UnitPlans, NamesAnotherNumberOfRanksAndOtherSizes) {
  Json json = short_form({{"h.0", "zero2"}, {"h.1", "zero3"}, {"root", "ddp"}});
  json["ranks"] = 4;
  json["units"][0]["parameter_bytes"] = 300;
  const PlanMaker plan = plan_of(json);
  EXPECT_NE(error_of([&] { plan(kUnits, 2); }).find("was made for 4 ranks, and this job has 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { plan(kUnits, 4); }).find("h.0 (300 B in the plan, 200 B in the model)"),
            std::string::npos)
      << error_of([&] { plan(kUnits, 4); });
}

TEST(UnitPlans, DrawsTheSameForASeed) {
  std::vector<cost::PlannedUnit> many;
  for (int i = 0; i < 200; ++i) many.push_back({str("unit", i), {}, 1});
  const std::vector<Sharding> drawn = strategies(drawn_plan(7), many);
  EXPECT_EQ(drawn, strategies(drawn_plan(7), many));
  EXPECT_NE(drawn, strategies(drawn_plan(8), many));
  for (const Sharding sharding : cost::kStrategies) {
    EXPECT_NE(std::find(drawn.begin(), drawn.end(), sharding), drawn.end()) << cost::name(sharding);
  }
}

}  // namespace
}  // namespace rondo::unit_plans_test
