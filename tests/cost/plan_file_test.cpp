#include "rondo/cost/plan_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"

namespace rondo::cost {
namespace {

using Json = nlohmann::ordered_json;

// Two units, one pass: slots 0 update, 1 and 2 forward, 3 and 4 backward, 5 epilogue, 6 end.
Json whole_form() {
  const auto block = [](const char* unit, const char* purpose, int slot) {
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
          {"blocks",
           {block("a", "gather_forward", 0), block("a", "gather_backward", 3), block("b", "all_reduce", 4),
            block("a", "reduce_scatter", 5)}},
          {"waits", {{{"slot", 5}, {"block", 1}}}},
          {"profile_hash", "abc"}};
}

std::string error_of(const Json& json) {
  try {
    parse_plan_file(json, "p");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanFile, ReadsBothForms) {
  const PlanFile whole = parse_plan_file(whole_form(), "p");
  ASSERT_TRUE(whole.schedule);
  EXPECT_EQ(whole.units[0].choice, (UnitChoice{Strategy::zero3, true}));
  EXPECT_EQ(whole.schedule->blocks[3].purpose, JobKind::reduce_scatter);
  EXPECT_EQ(whole.schedule->waits[0].block, 1U);
  const PlanFile brief = parse_plan_file({{"units", {{{"name", "a"}, {"strategy", "fsdp"}}}}}, "p");
  EXPECT_FALSE(brief.schedule);
  EXPECT_EQ(brief.units[0].choice, (UnitChoice{Strategy::zero3, false}));
  EXPECT_EQ(brief.ranks, 0);
}

TEST(PlanFile, HashIsOfWhatDecidesTraining) {
  const std::string hash = parse_plan_file(whole_form(), "p").hash;
  Json other = whole_form();
  other["step_ms"] = 9;
  other["units"][0]["reason"] = "another";
  EXPECT_EQ(parse_plan_file(other, "p").hash, hash);
  other["blocks"][1]["slot"] = 2;
  EXPECT_NE(parse_plan_file(other, "p").hash, hash);
  other = whole_form();
  other["units"][0]["checkpoint"] = false;
  EXPECT_NE(parse_plan_file(other, "p").hash, hash);
}

TEST(PlanFile, NamesWhatIsWrong) {
  const auto changed = [](const std::function<void(Json&)>& change) {
    Json json = whole_form();
    change(json);
    return error_of(json);
  };
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect(error_of(Json::array()), "p: expected an object");
  expect(error_of({{"units", Json::array()}}), "p.units: expected a list with units");
  expect(error_of({{"unitz", Json::array()}}), "p.unitz: unknown field");
  expect(error_of({{"units", {{{"name", 3}, {"strategy", "ddp"}}}}}), "p.units[0].name: expected a string");
  expect(changed([](Json& p) { p["feasible"] = false; }), "not feasible");
  expect(changed([](Json& p) { p["units"][0]["strategy"] = "zero4"; }), "unit 'a': 'zero4' is not one of");
  expect(changed([](Json& p) { p["units"][1]["name"] = "a"; }), "unit 'a' has two entries");
  expect(changed([](Json& p) { p["units"][1].erase("checkpoint"); }), "p.units[1].checkpoint: missing");
  expect(changed([](Json& p) { p.erase("waits"); }), "p.waits: missing");
  expect(changed([](Json& p) { p["blocks"][0]["unit"] = "c"; }),
         "p.blocks[0].unit: the plan has no such unit");
  expect(changed([](Json& p) { p["blocks"][0]["slot"] = 7; }), "p.blocks[0].slot: 7 lies outside");
  expect(changed([](Json& p) { p["blocks"][0]["slot"] = 4; }),
         "p.blocks[1].slot: blocks are not in the order");
  expect(changed([](Json& p) { p["blocks"][0]["purpose"] = "gather"; }), "no such collective: 'gather'");
  expect(changed([](Json& p) { p["waits"][0]["block"] = 4; }), "p.waits[0].block: there are 4 blocks");
  expect(changed([](Json& p) { p["ranks"] = 0; }), "p.ranks: 0 cannot be");
  EXPECT_THROW(read_plan_file("/nowhere/plan.json"), UsageError);
}

}  // namespace
}  // namespace rondo::cost
