#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/cost/profile_json.h"
#include "rondo/cost/step_model.h"
#include "rondo/cost/synthetic.h"

namespace rondo::cost::profile_test {
namespace {

using Json = nlohmann::ordered_json;

Json good() { return to_json(random_profile(1, 3, 4)); }

TEST(ProfileJson, SurvivesTheWayToAFileAndBack) {
  Profile profile = random_profile(5, 7, 8);
  profile.spread = 0.03;
  profile.overhead_s = 0.007;
  profile.units[2].backward_workspace_bytes = -12345;
  profile.units[3].checkpointed_backward_workspace_bytes = -1;
  const Profile back = parse_profile(to_json(profile), "p");
  EXPECT_EQ(to_json(back), to_json(profile));
  EXPECT_EQ(back.overhead_s, 0.007);
  EXPECT_EQ(profile_hash(back), profile_hash(profile));
  EXPECT_NE(profile_hash(random_profile(6, 7, 8)), profile_hash(profile));
}

TEST(ProfileJson, NamesTheFieldThatIsWrong) {
  struct Case {
    std::function<void(Json&)> spoil;
    std::string named;
  };
  const std::vector<Case> cases{
      {[](Json& j) { j["units"][1]["forward_s"] = -1; }, "p.units[1].forward_s: -1 is negative"},
      {[](Json& j) { j["units"][1].erase("backward_s"); }, "p.units[1].backward_s: missing"},
      {[](Json& j) { j["units"][0]["parameter_bytes"] = 1.5; }, "p.units[0].parameter_bytes"},
      {[](Json& j) { j["units"][0]["parameter_bytes"] = "many"; }, "expected a number, found string"},
      {[](Json& j) { j["units"][0]["parameters"] = 1; }, "p.units[0].parameters: unknown field"},
      {[](Json& j) { j["units"][0]["checkpointed_activation_bytes"] = 9e14; }, "exceeds activation_bytes"},
      {[](Json& j) { j["units"][2]["name"] = j["units"][0]["name"]; }, "appears twice"},
      {[](Json& j) { j["units"][0]["backward_workspace_bytes"] = -1e14; },
       "p.units[0].backward_workspace_bytes: -100000000000000 would free more than activation_bytes plus "
       "gradient_bytes"},
      {[](Json& j) { j["units"][0]["backward_workspace_bytes"] = -1.5; }, "is not an integer"},
      {[](Json& j) { j["units"] = Json::array(); }, "p.units: is empty"},
      {[](Json& j) { j.erase("link"); }, "p.link: missing"},
      {[](Json& j) { j["link"]["ranks"] = 1; }, "p.link.ranks"},
      {[](Json& j) { j["link"]["contention"] = 1; }, "p.link.contention: 1 is not below 1"},
      {[](Json& j) { j["link"]["collectives"].erase("all_gather"); },
       "p.link.collectives.all_gather: missing"},
      {[](Json& j) {
         j["link"]["collectives"]["all_reduce"] = {{1, 2.0}};
       },
       "at least two points"},
      {[](Json& j) {
         j["link"]["collectives"]["all_reduce"] = {{1, 2.0}, {2, 1.0}};
       },
       "p.link.collectives.all_reduce[1]: 2 bytes take 1 s, less than 1 bytes with 2 s"},
      {[](Json& j) {
         j["link"]["collectives"]["all_reduce"] = {{2, 1.0}, {2, 1.0}};
       },
       "sizes must ascend"},
      {[](Json& j) {
         j["link"]["collectives"]["all_reduce"] = {{1, 0.0}, {2, 1.0}};
       },
       "not a positive time"},
      {[](Json& j) { j["format"] = "other"; }, "p.format: 'other'"},
      {[](Json& j) { j["overhead_s"] = -0.1; }, "p.overhead_s: -0.1 is negative"},
      {[](Json& j) { j["units"][0]["strategies"] = {"zero9"}; }, "'zero9' is not one of ddp, zero1"},
  };
  for (const Case& c : cases) {
    Json json = good();
    c.spoil(json);
    try {
      parse_profile(json, "p");
      FAIL() << "accepted: " << c.named;
    } catch (const DataError& e) {
      EXPECT_NE(std::string(e.what()).find(c.named), std::string::npos) << e.what();
    }
  }
}

TEST(Link, InterpolatesAndKnowsItsRange) {
  const CostCurve curve({{100, 1.0}, {200, 2.0}, {400, 3.0}}, "c");
  EXPECT_DOUBLE_EQ(curve.seconds(50), 1.0);
  EXPECT_DOUBLE_EQ(curve.seconds(150), 1.5);
  EXPECT_DOUBLE_EQ(curve.seconds(300), 2.5);
  EXPECT_DOUBLE_EQ(curve.seconds(600), 4.0);
  EXPECT_TRUE(curve.in_range(100));
  EXPECT_FALSE(curve.in_range(99));
  EXPECT_FALSE(curve.in_range(401));
}

TEST(Link, FitsByRelativeError) {
  std::vector<CostPoint> points;
  for (std::uint64_t bytes = 1 << 10; bytes <= 1U << 28; bytes *= 4)
    points.push_back({bytes, 50e-6 + static_cast<double>(bytes) * 1e-9});
  points.back().seconds *= 1.1;  // a 10 % error of a large message must not affect the small ones
  const AlphaBeta line = fit_alpha_beta(points);
  EXPECT_NEAR(line.alpha_s, 50e-6, 3e-6);
  EXPECT_NEAR(line.beta_s_per_byte, 1e-9, 0.1e-9);
}

TEST(Link, RingScalesWithTheGroup) {
  const Link link = ring_link(8, 5e-6, 1e9);
  const Link four = ring_link(4, 5e-6, 1e9);
  for (const double bytes : {1e5, 1e8})
    EXPECT_NEAR(link.seconds(Collective::all_gather, bytes, 4),
                four.seconds(Collective::all_gather, bytes, 4),
                0.02 * four.seconds(Collective::all_gather, bytes, 4));
  EXPECT_EQ(link.seconds(Collective::all_gather, 1e6, 1), 0);
  // 9 alpha / beta
  EXPECT_NEAR(static_cast<double>(link.saturating_bytes), 9 * link.alpha_s / link.beta_s_per_byte, 1);
}

// Checks the table of docs/planner/step-model.md by hand for P = G = 100, O = 200 on 4 ranks.
TEST(StepModel, MemoryAndTrafficOfEachStrategy) {
  Profile profile;
  profile.link = ring_link(4, 0, 1e3);
  for (const char* name : {"a", "b"}) {
    UnitProfile unit;
    unit.name = name;
    unit.forward_s = 1;
    unit.backward_s = 2;
    unit.recompute_s = 1;
    unit.optimizer_s = 4;
    unit.parameter_bytes = unit.gradient_bytes = 100000;
    unit.optimizer_bytes = 200000;
    unit.activation_bytes = 50;
    unit.checkpointed_activation_bytes = 5;
    profile.units.push_back(unit);
  }
  StepOptions options;
  options.ranks = 4;
  const StepModel model = make_step_model(profile, options);
  const auto persistent = [&](Strategy s) { return model.cost_of(0, {s, false}).persistent_bytes; };
  EXPECT_EQ(persistent(Strategy::ddp), 300000U);
  EXPECT_EQ(persistent(Strategy::zero1), 150000U);
  EXPECT_EQ(persistent(Strategy::zero2), 150000U);
  EXPECT_EQ(persistent(Strategy::zero3), 75000U);
  EXPECT_EQ(persistent(Strategy::zero3_keep), 75000U);
  const auto reduced = [&](Strategy s) { return model.cost_of(0, {s, false}).reduced_bytes; };
  EXPECT_EQ(reduced(Strategy::ddp), 100000U);
  EXPECT_EQ(reduced(Strategy::zero1), 125000U);
  EXPECT_EQ(reduced(Strategy::zero2), 25000U);
  EXPECT_EQ(reduced(Strategy::zero3), 25000U);
  const auto seconds = [&](Strategy s) { return model.cost_of(0, {s, false}).communication_s; };
  const double once = 0.75 * 100000 / 1e3;
  EXPECT_NEAR(seconds(Strategy::ddp), 2 * once, 1e-6);
  EXPECT_NEAR(seconds(Strategy::zero1), 2 * once, 1e-6);
  EXPECT_NEAR(seconds(Strategy::zero2), 2 * once, 1e-6);
  EXPECT_NEAR(seconds(Strategy::zero3), 3 * once, 1e-6);
  EXPECT_NEAR(seconds(Strategy::zero3_keep), 2 * once, 1e-6);
  const ChoiceCost& checkpointed = model.cost_of(0, {Strategy::zero2, true});
  EXPECT_EQ(checkpointed.held_bytes, 5U);
  EXPECT_EQ(checkpointed.backward_s, 3);
  EXPECT_EQ(checkpointed.optimizer_s, 1);
  EXPECT_EQ(model.cost_of(0, {Strategy::ddp, false}).optimizer_s, 4);
  // Nothing lies between the last unit's forward and backward.
  EXPECT_FALSE(model.allows(1, {Strategy::zero3, false}));
}

UnitProfile backward_unit() {
  UnitProfile unit;
  unit.name = "a";
  unit.forward_s = unit.backward_s = unit.recompute_s = 1;
  unit.parameter_bytes = unit.gradient_bytes = 100;
  unit.activation_bytes = 60;
  unit.checkpointed_activation_bytes = 10;
  unit.forward_workspace_bytes = 30;
  return unit;
}

// The measured peak of a backward pass includes gradients, which are counted separately and in full.
TEST(StepModel, GradientsThatComeWhileActivationsGo) {
  Profile profile;
  profile.link = ring_link(4, 0, 1e3);
  profile.units = {backward_unit(), backward_unit()};
  profile.units[1].name = "b";
  const auto backward_bytes = [&](Strategy s, bool checkpoint) {
    return make_step_model(profile, {.ranks = 4}).cost_of(0, {s, checkpoint}).backward_bytes;
  };
  for (UnitProfile& unit : profile.units) unit.backward_workspace_bytes = -40;
  EXPECT_EQ(backward_bytes(Strategy::zero3, false), 60U - 40);
  EXPECT_EQ(backward_bytes(Strategy::ddp, false), 100U + 100);  // autograd's gradients and their copy
  EXPECT_EQ(backward_bytes(Strategy::zero2, false), 100U);      // the copy, after the activations are freed
  // The second forward has all activations and its workspace, but no gradient: 60 + 30 of 100.
  EXPECT_EQ(backward_bytes(Strategy::zero3, true), 60U - 40);
  for (UnitProfile& unit : profile.units) unit.gradient_bytes = 50;
  EXPECT_EQ(backward_bytes(Strategy::zero3, true), 60U + 30 - 50);
  for (UnitProfile& unit : profile.units) unit.checkpointed_backward_workspace_bytes = -15;
  EXPECT_EQ(backward_bytes(Strategy::zero3, true), 60U - 15);
  for (UnitProfile& unit : profile.units) unit.backward_workspace_bytes = -100;
  EXPECT_EQ(backward_bytes(Strategy::zero3, false), 0U);  // gradients are reduced as a whole anyway
}

TEST(Profile, AnotherBatchScalesWhatIsOfTheBatch) {
  Profile profile;
  profile.units = {backward_unit()};
  UnitProfile& unit = profile.units[0];
  unit.backward_workspace_bytes = -40;  // peak is 60 above the memory at the start of backward
  unit.checkpointed_backward_workspace_bytes = 8;
  const UnitProfile twice = scaled_to_batch(profile, 2).units[0];
  EXPECT_EQ(twice.backward_workspace_bytes, 2 * 60 - 100);
  EXPECT_EQ(twice.checkpointed_backward_workspace_bytes, 16);
  EXPECT_EQ(twice.activation_bytes, 120U);
  EXPECT_EQ(twice.gradient_bytes, 100U);
  EXPECT_EQ(scaled_to_batch(profile, 0.5).units[0].backward_workspace_bytes, -20);
}

TEST(StepModel, ReportsProfileOfNoisyMachine) {
  Profile profile = random_profile(2, 3, 4);
  profile.spread = 0.04;
  EXPECT_TRUE(make_step_model(profile, {.ranks = 4}).notes.empty());
  profile.spread = 0.2;
  const StepModel model = make_step_model(profile, {.ranks = 4});
  ASSERT_EQ(model.notes.size(), 1U);
  EXPECT_NE(model.notes[0].find("20 %"), std::string::npos) << model.notes[0];
}

double least_update_s(const StepModel& model) {
  double total = 0;
  for (int unit = 0; unit < model.units(); ++unit)
    total += model.cost_of(unit, model.choices[static_cast<std::size_t>(unit)].front().choice).optimizer_s;
  return total;
}

TEST(StepModel, AStepHasItsOverheadOnce) {
  Profile profile = random_profile(2, 5, 4);
  const StepModel without = make_step_model(profile, {.ranks = 4, .micro_batches = 3});
  profile.overhead_s = 0.5;
  const StepModel with = make_step_model(profile, {.ranks = 4, .micro_batches = 3});
  EXPECT_NEAR(least_update_s(with), least_update_s(without) + 0.5, 1e-9);
  EXPECT_NEAR(with.least_compute_s(), without.least_compute_s() + 0.5, 1e-9);
  for (const ChoiceCost& cost : with.choices[1]) {
    EXPECT_NEAR(cost.optimizer_s - without.cost_of(1, cost.choice).optimizer_s, 0.1, 1e-9)
        << describe(cost.choice);
    EXPECT_EQ(cost.backward_s, without.cost_of(1, cost.choice).backward_s);
  }
}

// Handmade and synthetic profiles need no overhead; a profile measured between hosts has one.
TEST(StepModel, SaysWhenAMeasuredProfileHasNoOverhead) {
  Profile profile = random_profile(2, 3, 4);
  const auto notes = [&] { return make_step_model(profile, {.ranks = 4}).notes; };
  EXPECT_TRUE(notes().empty());
  profile.made_for = "gpt, batch 4 a rank";
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_NE(notes()[0].find("overhead_s"), std::string::npos) << notes()[0];
  profile.overhead_s = 0.001;
  EXPECT_TRUE(notes().empty());
  profile.overhead_s = 0;
  profile.link.parameters_in_place = true;
  EXPECT_TRUE(notes().empty());
}

// Each micro-batch has a part of the overhead, which is counted once: the plan states the possible error.
TEST(StepModel, ReportsOverheadOfSeveralMicroBatches) {
  Profile profile = random_profile(2, 3, 4);
  const auto notes = [&](int micro_batches) {
    return make_step_model(profile, {.ranks = 4, .micro_batches = micro_batches}).notes;
  };
  EXPECT_TRUE(notes(3).empty());
  profile.overhead_s = 0.011;
  EXPECT_TRUE(notes(1).empty());
  ASSERT_EQ(notes(3).size(), 1U);
  for (const char* fact : {"overhead_s", "11 ms", "3 micro-batches", "22 ms"})
    EXPECT_NE(notes(3)[0].find(fact), std::string::npos) << notes(3)[0];
}

TEST(Profile, UnitsShareTheTimeOfAPass) {
  Profile profile;
  profile.units = {backward_unit(), backward_unit()};
  profile.units[1].backward_s = 3;
  profile.units[1].recompute_s = 0.5;
  fit_to_pass(profile, 12);  // the passes took 1 + 1 + 1 + 3
  EXPECT_DOUBLE_EQ(profile.units[0].forward_s, 2);
  EXPECT_DOUBLE_EQ(profile.units[1].backward_s, 6);
  EXPECT_DOUBLE_EQ(profile.units[1].recompute_s, 1);
  Profile idle;
  idle.units.emplace_back();
  fit_to_pass(idle, 12);
  EXPECT_EQ(idle.units[0].forward_s, 0);
}

TEST(StepModel, MicroBatchesAndShardGroups) {
  StepOptions options;
  options.ranks = 8;
  options.micro_batches = 3;
  const StepModel passes = make_step_model(random_profile(3, 4, 8), options);
  const auto segments_of = [&](Strategy s) { return passes.cost_of(1, {s, false}).jobs.size(); };
  EXPECT_EQ(segments_of(Strategy::ddp), 1U);    // once
  EXPECT_EQ(segments_of(Strategy::zero1), 2U);  // once each
  EXPECT_EQ(segments_of(Strategy::zero2), 4U);  // a reduction per micro-batch
  EXPECT_EQ(segments_of(Strategy::zero3), 9U);
  options.shard_group = 2;
  const StepModel hybrid = make_step_model(random_profile(3, 4, 8), options);
  EXPECT_GT(hybrid.cost_of(1, {Strategy::zero3, false}).persistent_bytes,
            passes.cost_of(1, {Strategy::zero3, false}).persistent_bytes);
  options.shard_group = 3;
  EXPECT_THROW(make_step_model(random_profile(3, 4, 8), options), UsageError);
}

TEST(StepModel, SaysWhichSizesWereNotMeasured) {
  Profile profile = random_profile(2, 3, 4);
  EXPECT_TRUE(make_step_model(profile, {.ranks = 4}).notes.empty());
  profile.link.curves[0] = CostCurve({{1000, 1e-3}, {2000, 2e-3}}, "c");
  const StepModel model = make_step_model(profile, {.ranks = 4});
  ASSERT_FALSE(model.notes.empty());
  EXPECT_NE(model.notes[0].find("extrapolated"), std::string::npos);
}

TEST(Synthetic, GptFollowsItsFormulas) {
  const Profile profile = synthetic_profile("gpt:layers=48,dim=4096,batch=2,seq=1024", 16);
  ASSERT_EQ(profile.units.size(), 48U);
  const UnitProfile& unit = profile.units[10];
  const double parameters = 12.0 * 4096 * 4096 + 13.0 * 4096;
  EXPECT_NEAR(static_cast<double>(unit.parameter_bytes), 2 * parameters, 1);
  EXPECT_NEAR(unit.forward_s, (24.0 * 2048 * 4096 * 4096 + 4.0 * 2048 * 1024 * 4096) / 140e12, 1e-9);
  EXPECT_DOUBLE_EQ(unit.backward_s, 2 * unit.forward_s);
  for (const char* wrong :
       {"bert:layers=2", "gpt:layer=2", "gpt:layers=0", "gpt:layers=1.5", "gpt:dim=-4", "gpt:dim"})
    EXPECT_THROW(synthetic_profile(wrong, 2), UsageError) << wrong;
}

TEST(Synthetic, RandomProfilesKeepTheirPromise) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Profile profile = random_profile(seed, 12, 16);
    double compute = 0;
    for (const UnitProfile& u : profile.units) compute += u.forward_s + u.backward_s;
    double communication = 0;
    const StepModel model = make_step_model(profile, {.ranks = 16, .segments_per_collective = 1});
    for (const Job& job : model.jobs) {
      if (job.kind == JobKind::gather_forward || job.kind == JobKind::gather_backward ||
          job.kind == JobKind::reduce_scatter)
        communication += job.seconds();
    }
    EXPECT_GT(communication / compute, 0.4);
    EXPECT_LT(communication / compute, 2.1);
  }
}

}  // namespace
}  // namespace rondo::cost::profile_test
