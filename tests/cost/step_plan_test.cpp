#include "rondo/cost/step_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "tests/errors.h"

namespace rondo::cost::step_plan_test {
namespace {

using Json = nlohmann::ordered_json;

// Two units, one pass: slots 0 update, 1 and 2 forward, 3 and 4 backward, 5 epilogue, 6 end.
Json whole_form() {
  const auto segment = [](const char* unit, const char* purpose, int slot) {
    return Json{{"collective", "all_gather"}, {"unit", unit},    {"index", 0}, {"bytes", 50}, {"slot", slot},
                {"purpose", purpose},         {"micro_batch", 0}};
  };
  return {{"feasible", true},
          {"step_ms", 1.5},
          {"memory_limit_bytes", 1000},
          {"ranks", 2},
          {"model", "m"},
          {"batch_size", 4},
          {"shard_group", 2},
          {"micro_batches", 1},
          {"units",
           {{{"name", "a"},
             {"strategy", "zero3"},
             {"checkpoint", true},
             {"parameter_bytes", 100},
             {"reason", "r"}},
            {{"name", "b"}, {"strategy", "ddp"}, {"checkpoint", false}, {"parameter_bytes", 7}}}},
          {"segments",
           {segment("a", "gather_forward", 0), segment("a", "gather_backward", 3),
            segment("b", "all_reduce", 4), segment("a", "reduce_scatter", 5)}},
          {"waits", {{{"slot", 5}, {"segment", 1}}}},
          {"profile_hash", "abc"}};
}

std::string error_of(const Json& json) {
  try {
    parse_step_plan(json, "p");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(StepPlan, ReadsBothForms) {
  const StepPlan whole = parse_step_plan(whole_form(), "p");
  ASSERT_TRUE(whole.schedule);
  EXPECT_EQ(whole.units[0].choice, (UnitChoice{Strategy::zero3, true}));
  EXPECT_EQ(whole.schedule->segments[3].purpose, JobKind::reduce_scatter);
  EXPECT_EQ(whole.schedule->waits[0].segment, 1U);
  const StepPlan brief = parse_step_plan({{"units", {{{"name", "a"}, {"strategy", "fsdp"}}}}}, "p");
  EXPECT_FALSE(brief.schedule);
  EXPECT_EQ(brief.units[0].choice, (UnitChoice{Strategy::zero3, false}));
  EXPECT_EQ(brief.ranks, 0);
}

TEST(StepPlan, HashIsOfWhatDecidesTraining) {
  const std::string hash = parse_step_plan(whole_form(), "p").hash;
  Json other = whole_form();
  other["step_ms"] = 9;
  other["units"][0]["reason"] = "another";
  EXPECT_EQ(parse_step_plan(other, "p").hash, hash);
  other["segments"][1]["slot"] = 2;
  EXPECT_NE(parse_step_plan(other, "p").hash, hash);
  other = whole_form();
  other["units"][0]["checkpoint"] = false;
  EXPECT_NE(parse_step_plan(other, "p").hash, hash);
}

TEST(StepPlan, NamesWhatIsWrong) {
  const auto changed = [](const std::function<void(Json&)>& change) {
    Json json = whole_form();
    change(json);
    return error_of(json);
  };
  testing::expect_facts(error_of(Json::array()), {"p", "object"});
  testing::expect_facts(error_of({{"units", Json::array()}}), {"p.units", "list"});
  testing::expect_facts(error_of({{"unitz", Json::array()}}), {"p.unitz"});
  testing::expect_facts(error_of({{"units", {{{"name", 3}, {"strategy", "ddp"}}}}}),
                        {"p.units[0].name", "string"});
  testing::expect_facts(changed([](Json& p) { p["feasible"] = false; }), {"feasible"});
  testing::expect_facts(changed([](Json& p) { p["units"][0]["strategy"] = "zero4"; }),
                        {"'a'", "'zero4'", "zero3"});
  testing::expect_facts(changed([](Json& p) { p["units"][1]["name"] = "a"; }), {"'a'", "two"});
  testing::expect_facts(changed([](Json& p) { p["units"][1].erase("checkpoint"); }),
                        {"p.units[1].checkpoint", "missing"});
  testing::expect_facts(changed([](Json& p) { p.erase("waits"); }), {"p.waits", "missing"});
  testing::expect_facts(changed([](Json& p) { p["segments"][0]["unit"] = "c"; }), {"p.segments[0].unit"});
  testing::expect_facts(changed([](Json& p) { p["segments"][0]["slot"] = 7; }), {"p.segments[0].slot", "7"});
  testing::expect_facts(changed([](Json& p) { p["segments"][0]["slot"] = 4; }), {"p.segments[1].slot"});
  testing::expect_facts(changed([](Json& p) { p["segments"][0]["purpose"] = "gather"; }), {"'gather'"});
  testing::expect_facts(changed([](Json& p) { p["waits"][0]["segment"] = 4; }),
                        {"p.waits[0].segment", "4 segments"});
  testing::expect_facts(changed([](Json& p) { p["ranks"] = 0; }), {"p.ranks", "0"});
  EXPECT_THROW(read_step_plan("/nowhere/plan.json"), UsageError);
}

}  // namespace
}  // namespace rondo::cost::step_plan_test
