#include "rondo/plan/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/cost/synthetic.h"
#include "rondo/plan/plan_file.h"
#include "tests/plan/brute_force.h"

namespace rondo::plan::planner_test {
namespace {

cost::StepModel random_model(std::uint64_t seed, int units, const cost::StepOptions& options) {
  return cost::make_step_model(cost::random_profile(seed, units, options.ranks), options);
}

// Makes gradients grow while activations are freed, so that backward's peak is below the sum of both.
cost::Profile with_negative_workspaces(cost::Profile profile, std::uint64_t seed) {
  for (std::size_t i = 0; i < profile.units.size(); ++i) {
    cost::UnitProfile& unit = profile.units[i];
    const double share = 0.2 + 0.2 * static_cast<double>((seed + i) % 5);
    unit.backward_workspace_bytes =
        -static_cast<std::int64_t>(share * static_cast<double>(unit.gradient_bytes));
    if (i % 2 == 0) unit.checkpointed_backward_workspace_bytes = unit.backward_workspace_bytes / 2;
  }
  return profile;
}

// Returns a limit strictly between the extremes, at a different fraction for every seed.
std::uint64_t limit_between(const cost::StepModel& model, std::uint64_t seed) {
  const auto low = static_cast<double>(memory_floor(model).bytes);
  const auto high = static_cast<double>(memory_ceiling(model));
  const double share = 0.1 + 0.8 * static_cast<double>((seed * 37) % 100) / 100;
  return static_cast<std::uint64_t>(low + share * (high - low));
}

// The planner ends much earlier by itself: the time limit is for tests that hang.
PlannerOptions within(std::uint64_t limit) {
  PlannerOptions options;
  options.memory_limit = limit;
  options.time_limit = std::chrono::minutes(2);
  return options;
}

void expect_sound(const cost::StepModel& model, const PlanResult& answer, std::uint64_t limit,
                  const std::string& what) {
  ASSERT_TRUE(answer.feasible) << what;
  simulate::check_plan(model, answer.plan);
  const auto again = simulate::simulate_step(model, answer.plan, limit);
  EXPECT_TRUE(again.fits) << what;
  EXPECT_LE(again.peak_bytes, limit) << what;
  EXPECT_DOUBLE_EQ(again.step_s, answer.result.step_s) << what;
  EXPECT_LE(answer.lower_bound_s, answer.result.step_s) << what;
  for (const Baseline& baseline : answer.baselines) {
    if (baseline.result.fits) {
      EXPECT_LE(answer.result.step_s, baseline.result.step_s) << what << baseline.name;
    }
  }
}

// Expects a proven bound from the solver; a time-out would leave the plan without one.
void expect_proven(const PlanResult& answer, const std::string& what) {
  EXPECT_FALSE(answer.is_heuristic) << what << answer.solver;
  EXPECT_LE(answer.gap, PlannerOptions().target_gap * (1 + 1e-6)) << what;
}

TEST(Planner, NeverWorseThanAnyBaseline) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    cost::StepOptions options;
    options.ranks = 16;
    options.buffers = seed % 2 == 0 ? cost::Buffers::unit : cost::Buffers::segment;
    cost::Profile profile = cost::random_profile(seed, 10, options.ranks);
    if (seed >= 3) profile = with_negative_workspaces(std::move(profile), seed);
    const cost::StepModel model = cost::make_step_model(profile, options);
    const std::uint64_t limit = limit_between(model, seed);
    const PlanResult answer = make_plan(model, within(limit));
    expect_sound(model, answer, limit, str("seed ", seed, " "));
    expect_proven(answer, str("seed ", seed, " "));
  }
}

TEST(Planner, HeuristicPlannerIsMarkedAndSound) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    cost::StepOptions options;
    options.ranks = 4;
    options.micro_batches = 1 + static_cast<int>(seed % 2);
    options.shard_group = seed % 3 == 0 ? 2 : 0;
    const cost::StepModel model = random_model(seed, 8, options);
    const std::uint64_t limit = limit_between(model, seed);
    PlannerOptions planner = within(limit);
    planner.use_solver = false;
    const PlanResult answer = make_plan(model, planner);
    expect_sound(model, answer, limit, str("seed ", seed, " "));
    EXPECT_TRUE(answer.is_heuristic);
    EXPECT_NE(answer.solver.find("heuristic"), std::string::npos);
  }
}

TEST(Planner, MicroBatchesAndHybridGroupsWithTheSolver) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    cost::StepOptions options;
    options.ranks = 8;
    options.micro_batches = 2;
    options.shard_group = 4;
    const cost::StepModel model = random_model(seed, 6, options);
    const std::uint64_t limit = limit_between(model, seed);
    const PlanResult answer = make_plan(model, within(limit));
    expect_sound(model, answer, limit, str("seed ", seed, " "));
    expect_proven(answer, str("seed ", seed, " "));
  }
}

// No plan is faster: checks every choice, slot and order with a second simulator.
class Oracle : public ::testing::TestWithParam<int> {};

TEST_P(Oracle, NoPlanIsFaster) {
  const int units = GetParam();
  const int seeds = units <= 4 ? 6 : 3;
  for (int seed = 0; seed < seeds; ++seed) {
    cost::StepOptions options;
    options.ranks = 4;
    options.segments_per_collective = 1;
    options.prefetch_window = units <= 3 ? 3 : 2;
    cost::Profile profile = cost::random_profile(static_cast<std::uint64_t>(seed), units, options.ranks);
    if (units > 3) {
      for (cost::UnitProfile& unit : profile.units)
        unit.strategies = {cost::Strategy::zero2, cost::Strategy::zero3, cost::Strategy::zero3_keep};
    }
    if (seed % 2 == 1)
      profile = with_negative_workspaces(std::move(profile), static_cast<std::uint64_t>(seed));
    profile.link.parameters_in_place = seed % 3 == 2;
    const cost::StepModel model = cost::make_step_model(profile, options);
    const std::uint64_t limit = limit_between(model, static_cast<std::uint64_t>(seed));
    PlannerOptions planner = within(limit);
    planner.target_gap = 0;
    const PlanResult answer = make_plan(model, planner);
    ASSERT_TRUE(answer.feasible);
    BruteForce brute(model, limit, answer.result.step_s * (1 + 1e-6));
    const double best = brute.run();
    EXPECT_NEAR(answer.result.step_s, best, 1e-5 * best) << units << " units, seed " << seed;
    EXPECT_LE(answer.lower_bound_s, best * (1 + 1e-9)) << units << " units, seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Units, Oracle, ::testing::Values(2, 3, 4, 5));

TEST(Planner, InfeasibleLimitNamesTheSmallest) {
  const cost::StepModel model = random_model(4, 6, {.ranks = 4});
  const MemoryFloor floor = memory_floor(model);
  const PlannerOptions options = within(floor.bytes - 1);
  const PlanResult answer = make_plan(model, options);
  EXPECT_FALSE(answer.feasible);
  const Explanation explanation = explain(model, answer, options.memory_limit);
  EXPECT_NE(explanation.binding.find(std::to_string(floor.bytes)), std::string::npos) << explanation.binding;
  EXPECT_NE(explanation.binding.find("unit."), std::string::npos) << explanation.binding;
  EXPECT_TRUE(make_plan(model, within(floor.bytes)).feasible);
  const auto json = plan_to_json(model, answer, explanation, options);
  EXPECT_FALSE(json["feasible"].get<bool>());
  EXPECT_THROW(parse_step_plan(json, "p"), DataError);
}

// If no limit binds, sharding the updated state is free and needs less memory.
TEST(Planner, PrefersLessMemoryAmongEquallyFastPlans) {
  cost::StepOptions options{.ranks = 4};
  cost::Profile profile = cost::random_profile(2, 6, options.ranks);
  profile.link.contention = 0;
  for (cost::UnitProfile& unit : profile.units)
    unit.strategies = {cost::Strategy::zero1, cost::Strategy::zero2};
  const cost::StepModel model = cost::make_step_model(profile, options);
  const PlanResult answer = make_plan(model, within(UINT64_MAX / 2));
  ASSERT_TRUE(answer.feasible);
  for (const cost::UnitChoice choice : answer.plan.choices) EXPECT_EQ(choice.strategy, cost::Strategy::zero2);
}

TEST(Planner, StopsWhenCancelledWithAPlan) {
  const cost::StepModel model = random_model(3, 24, {.ranks = 16});
  const std::uint64_t limit = limit_between(model, 3);
  const CancelToken cancel;
  cancel.cancel();
  PlannerOptions options = within(limit);
  options.cancel = &cancel;
  const PlanResult answer = make_plan(model, options);
  expect_sound(model, answer, limit, "");
  EXPECT_TRUE(answer.is_heuristic);
}

TEST(Planner, OverlapIsNotTheSameAsStepTime) {
  double worse = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const cost::StepModel model = random_model(seed, 8, {.ranks = 16});
    const std::uint64_t limit = limit_between(model, seed);
    PlannerOptions options = within(limit);
    const PlanResult fastest = make_plan(model, options);
    expect_proven(fastest, str("seed ", seed, " "));
    const double step = fastest.result.step_s;
    options.objective = Objective::overlap;
    const PlanResult overlap = make_plan(model, options);
    EXPECT_TRUE(overlap.feasible);
    EXPECT_FALSE(overlap.is_heuristic);
    worse = std::max(worse, overlap.result.step_s / step);
  }
  EXPECT_GT(worse, 1.0);
}

TEST(StepPlan, IsReadBackAsItWasWritten) {
  const cost::StepModel model = random_model(8, 6, {.ranks = 4});
  const PlannerOptions options = within(limit_between(model, 8));
  const PlanResult answer = make_plan(model, options);
  const auto json = plan_to_json(model, answer, explain(model, answer, options.memory_limit), options);
  for (const char* key : {"feasible", "step_ms", "lower_bound_ms", "gap", "peak_bytes", "memory_limit_bytes",
                          "ranks", "solve_s", "solver", "units", "segments", "baselines", "profile_hash"})
    EXPECT_TRUE(json.contains(key)) << key;
  const simulate::Candidate back = plan_from_json(model, json, "p");
  EXPECT_EQ(back.choices, answer.plan.choices);
  simulate::Timeline timeline;
  simulate::simulate_step(model, answer.plan, options.memory_limit, &timeline);
  EXPECT_EQ(parse_step_plan(json, "p").schedule->segments,
            step_plan(model, answer, options.memory_limit, timeline).schedule->segments);
  EXPECT_DOUBLE_EQ(simulate::simulate_step(model, back, options.memory_limit).step_s, answer.result.step_s);
  EXPECT_THROW(plan_from_json(random_model(9, 6, {.ranks = 4}), json, "p"), UsageError);
  auto spoiled = json;
  spoiled["units"][0]["strategy"] = "zero9";
  EXPECT_THROW(parse_step_plan(spoiled, "p"), DataError);
  spoiled = json;
  spoiled["units"].erase(0);
  EXPECT_THROW(plan_from_json(model, spoiled, "p"), DataError);
  spoiled = json;
  spoiled["segments"].erase(0);
  EXPECT_THROW(plan_from_json(model, spoiled, "p"), UsageError);
}

TEST(StepPlan, Fsdp2TermsNameEveryUnit) {
  const cost::StepModel model = random_model(8, 5, {.ranks = 4});
  std::vector<cost::UnitChoice> choices;
  for (int unit = 0; unit < 5; ++unit)
    choices.push_back(simulate::nearest_choice(model, unit, {cost::Strategy::zero3, unit == 2}));
  const auto json = to_fsdp2(model, prefetch_schedule(model, choices, 1));
  ASSERT_EQ(json["units"].size(), 5U);
  EXPECT_TRUE(json["units"][0]["reshard_after_forward"].get<bool>());
  EXPECT_FALSE(json["units"][4]["reshard_after_forward"].get<bool>());
  EXPECT_TRUE(json["units"][2]["checkpoint"].get<bool>());
  EXPECT_EQ(json["units"][0]["forward_prefetch"][0], "unit.1");
  EXPECT_EQ(json["units"][3]["backward_prefetch"][0], "unit.2");
  EXPECT_TRUE(json["approximated"].empty());
}

TEST(Formulation, WritesMpsWithTheClassicConstraintsByName) {
  const cost::StepModel model = random_model(1, 3, {.ranks = 4});
  const Formulation formulation(model, limit_between(model, 1), Objective::step_time, true);
  const std::string mps = to_mps(formulation.program());
  for (const char* name : {"ROWS", "communicated_once[gather_forward,unit.1,0]", "memory[1]",
                           "reduce_scatter_before_all_gather[unit.1]", "INTORG", "ENDATA"})
    EXPECT_NE(mps.find(name), std::string::npos) << name;
}

TEST(LargestBatch, GrowsWithShardingAndCheckpoints) {
  const cost::Profile profile = cost::synthetic_profile("gpt:layers=6,dim=1024,seq=512", 8);
  const auto batches = largest_batches(profile, {.ranks = 8}, std::uint64_t{4} << 30);
  const auto of = [&](const std::string& name) {
    for (const LargestBatch& b : batches) {
      if (b.strategy == name) return b.batch;
    }
    return std::uint64_t{0};
  };
  EXPECT_GT(of("ddp"), 0U);
  EXPECT_GE(of("zero2"), of("ddp"));
  EXPECT_GE(of("zero3"), of("zero2"));
  EXPECT_GT(of("zero3 + checkpoint"), 2 * of("zero3"));
}

}  // namespace
}  // namespace rondo::plan::planner_test
