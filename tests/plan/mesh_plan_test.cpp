#include "rondo/plan/mesh/mesh_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/cost/step_plan.h"
#include "rondo/cost/synthetic.h"

namespace rondo::plan::mesh_plan_test {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

PlannerOptions within(std::uint64_t limit) {
  PlannerOptions options;
  options.memory_limit = limit;
  options.time_limit = std::chrono::minutes(2);
  options.target_gap = 0.01;
  return options;
}

MeshPlan plan_of(const cost::Profile& profile, int ranks, std::uint64_t limit,
                 const MeshSearch& search = {}) {
  cost::StepOptions step;
  step.ranks = ranks;
  return plan_mesh(profile, step, within(limit), search);
}

// Returns a profile of unequal layers, with messages that take time.
cost::Profile small_profile(std::uint64_t seed, int layers) {
  cost::Profile profile = cost::random_profile(seed, layers, 4);
  profile.batch_size = 4;
  // Large enough to influence cuts and recomputation.
  for (cost::UnitProfile& unit : profile.units) unit.activation_bytes *= 8;
  return profile;
}

TEST(MeshPlan, RecomputationIsTheCheapestThatSavesEnough) {
  RandomStream random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Recomputation> layers;
    std::uint64_t savable = 0;
    for (int i = 0; i < 9; ++i) {
      layers.push_back({1 + random.uniform(), 10 * random.below(4)});
      savable += layers.back().saved_bytes;
    }
    const std::uint64_t need = random.below(savable + 2);
    double best = 1e9;
    for (unsigned mask = 0; mask < 1U << layers.size(); ++mask) {
      double seconds = 0;
      std::uint64_t saved = 0;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        if ((mask >> i & 1U) == 0) continue;
        seconds += layers[i].seconds;
        saved += layers[i].saved_bytes;
      }
      if (saved >= need) best = std::min(best, seconds);
    }
    double seconds = 0;
    std::uint64_t saved = 0;
    for (const std::size_t i : cheapest_recomputation(layers, need)) {
      seconds += layers[i].seconds;
      saved += layers[i].saved_bytes;
    }
    EXPECT_GE(saved, std::min(need, savable)) << trial;
    if (need < savable) {
      EXPECT_NEAR(seconds, best, 1e-9) << trial;
    }
  }
}

// Tries every cut, every strategy of each rank and every set of checkpointed layers.
double brute_force_step(const simulate::PipelineCosts& costs, const std::string& schedule, int micro_batches,
                        std::uint64_t limit) {
  const int layers = static_cast<int>(costs.layers().size());
  double best = 1e9;
  for (int cut = 1; cut < layers; ++cut) {
    for (int strategies = 0; strategies < 4; ++strategies) {
      for (unsigned mask = 0; mask < 1U << layers; ++mask) {
        simulate::PipelineChoice choice;
        choice.schedule = schedule;
        choice.micro_batches = micro_batches;
        choice.first = {0, cut};
        choice.strategies = {kStageStrategies[strategies % 2], kStageStrategies[strategies / 2]};
        for (int i = 0; i < layers; ++i) choice.checkpointed.push_back((mask >> i & 1U) != 0);
        const auto step = costs.forecast(choice);
        if (step.peak_bytes <= limit) best = std::min(best, step.step_s);
      }
    }
  }
  return best;
}

TEST(MeshPlan, PipelinesAreAsFastAsTheBest) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const cost::Profile profile = small_profile(seed, 6);
    const simulate::MeshShape shape{.pipeline = 2, .data = 2, .samples = 8};
    const simulate::PipelineCosts costs(profile, shape, simulate::same_links(profile.link), 4);
    const std::uint64_t most = plan_pipeline(costs, "1f1b", 4, 2, kPlenty, {}).forecast.peak_bytes;
    const std::uint64_t least = plan_pipeline(costs, "1f1b", 4, 2, 0, {}).forecast.peak_bytes;
    ASSERT_LT(least, most);
    for (const double share : {0.2, 0.5, 0.8, 1.0}) {
      const std::uint64_t limit =
          least + static_cast<std::uint64_t>(share * static_cast<double>(most - least));
      const PipelinePlan plan = plan_pipeline(costs, "1f1b", 4, 2, limit, {});
      EXPECT_LE(plan.forecast.peak_bytes, limit) << seed << " " << share;
      EXPECT_LE(plan.forecast.step_s, 1.02 * brute_force_step(costs, "1f1b", 4, limit))
          << seed << " " << share;
    }
  }
}

TEST(MeshPlan, AllMeshesOfSomeRanks) {
  EXPECT_EQ(meshes_of(1).size(), 1);
  EXPECT_EQ(meshes_of(2).size(), 3);
  EXPECT_EQ(meshes_of(8).size(), 10);  // factorizations into three factors
  EXPECT_EQ(meshes_of(12).size(), 18);
  EXPECT_EQ(meshes_of(4, {"tensor", "context"}).size(), meshes_of(4).size() + 3U) << "again by 2, 4 and 2";
  for (const Mesh& mesh : meshes_of(12))
    EXPECT_EQ(size_along(mesh, "pipeline") * size_along(mesh, "data") * size_along(mesh, "tensor"), 12);
}

TEST(MeshPlan, CandidatesKeepBoundsAndBestWins) {
  const cost::Profile profile =
      cost::synthetic_profile("gpt:layers=8,dim=1024,seq=512,rate=1e9,heads=4,batch=4", 4);
  const MeshPlan plan = plan_of(profile, 4, kPlenty);
  ASSERT_TRUE(plan.best().fits);
  bool has_group = false;
  for (const MeshCandidate& each : plan.candidates) {
    EXPECT_FALSE(each.why.empty()) << each.name();
    EXPECT_GE(each.lower_bound_s > 1e300 ? each.lower_bound_s : each.step_s + 1e9, each.lower_bound_s);
    if (each.fits) {
      EXPECT_GE(each.step_s, plan.best().step_s) << each.name();
      EXPECT_GE(each.step_s * (1 + 1e-9), each.lower_bound_s) << each.name();
      EXPECT_LE(each.peak_bytes, kPlenty);
    } else if (each.peak_bytes == 0) {
      EXPECT_GE(each.lower_bound_s, plan.best().step_s) << each.name();  // no better candidate was skipped
    }
    has_group = has_group || (each.shard_group == 2 && size_along(each.mesh, "data") == 4);
    // Every step has the same number of samples.
    EXPECT_EQ(each.batch_size * static_cast<std::uint64_t>(size_along(each.mesh, "data")), 16) << each.name();
  }
  EXPECT_TRUE(has_group);
}

TEST(MeshPlan, StagesFitWhereReplicasDoNot) {
  // A slow link and large layers: along data a rank needs a full layer and every gradient in flight.
  const cost::Profile profile =
      cost::synthetic_profile("gpt:layers=8,dim=2048,seq=128,rate=1e8,batch=4,heads=1", 4);
  const auto least_of = [&](const char* mesh) {
    MeshSearch search;
    search.mesh = parse_mesh(mesh, "mesh");
    return plan_of(profile, 4, 1, search).best().peak_bytes;
  };
  const std::uint64_t limit = least_of("pipeline=4") + (std::uint64_t{1} << 20);
  MeshSearch search;
  search.mesh = parse_mesh("pipeline=4", "mesh");
  const MeshPlan fixed = plan_of(profile, 4, limit, search);
  EXPECT_TRUE(fixed.best().fits);
  const MeshPlan all = plan_of(profile, 4, kPlenty);
  EXPECT_GT(size_along(all.best().mesh, "pipeline"), 1)
      << all.best().name();  // little communication between stages
}

TEST(MeshPlan, WhatTrainingDoesNotServeIsNotTaken) {
  const cost::Profile profile = cost::synthetic_profile("gpt:layers=4,dim=256,seq=64,heads=4,batch=4", 4);
  MeshSearch search;
  search.refusal = [](const Mesh& mesh) {
    return size_along(mesh, "tensor") > 1 ? str("no parts on ", to_string(mesh)) : std::string();
  };
  for (const MeshCandidate& each : plan_of(profile, 4, kPlenty, search).candidates) {
    if (size_along(each.mesh, "tensor") == 1) continue;
    EXPECT_EQ(each.peak_bytes, 0);
    EXPECT_NE(each.why.find("no parts"), std::string::npos);
  }
  search.mesh = parse_mesh("tensor=4", "mesh");
  EXPECT_THROW(plan_of(profile, 4, kPlenty, search), UsageError);
  search.mesh = parse_mesh("pipeline=3", "mesh");
  EXPECT_THROW(plan_of(profile, 4, kPlenty, search), UsageError);
  search.mesh = parse_mesh("data=4", "mesh");
  search.samples = 6;
  EXPECT_THROW(plan_of(profile, 4, kPlenty, search), UsageError);
}

TEST(MeshPlan, PipelineNotesThatOverheadIsCountedOnce) {
  cost::Profile profile = cost::synthetic_profile("gpt:layers=8,dim=256,seq=64,heads=4,batch=4", 4);
  profile.overhead_s = 0.001;
  cost::StepOptions step;
  step.ranks = 4;
  const auto notes_on = [&](const char* mesh) {
    MeshSearch search;
    search.mesh = parse_mesh(mesh, "mesh");
    const MeshPlan plan = plan_mesh(profile, step, within(kPlenty), search);
    EXPECT_GT(plan.best().micro_batches, 1);
    return mesh_plan_to_json(profile, step, plan, within(kPlenty)).at("notes");
  };
  ASSERT_EQ(notes_on("pipeline=2,data=2").size(), 1U);
  EXPECT_NE(notes_on("pipeline=2,data=2")[0].get<std::string>().find("overhead_s"), std::string::npos);
  EXPECT_EQ(notes_on("pipeline=4").size(), 0U) << "ranks of one replica combine nothing";
}

TEST(MeshPlan, TheFileIsReadBack) {
  const cost::Profile profile = cost::synthetic_profile("gpt:layers=8,dim=256,seq=64,heads=4,batch=4", 4);
  cost::StepOptions step;
  step.ranks = 4;
  MeshSearch search;
  search.mesh = parse_mesh("pipeline=2,data=2", "mesh");
  const MeshPlan plan = plan_mesh(profile, step, within(kPlenty), search);
  const auto json = mesh_plan_to_json(profile, step, plan, within(kPlenty));
  const cost::StepPlan read = cost::parse_step_plan(json, "plan");
  EXPECT_EQ(read.mesh, "pipeline=2,data=2");
  EXPECT_EQ(read.ranks, 4);
  ASSERT_TRUE(read.pipeline);
  EXPECT_EQ(read.pipeline->schedule, plan.best().schedule);
  EXPECT_EQ(read.pipeline->micro_batches, plan.best().micro_batches);
  EXPECT_EQ(read.pipeline->strategies, plan.best().pipeline->choice.strategies);
  EXPECT_EQ(read.pipeline->stage_cuts.size() + 1, plan.best().pipeline->choice.first.size());
  EXPECT_EQ(read.schedule->batch_size, 8);
  EXPECT_EQ(json.at("candidates").size(), plan.candidates.size());
  auto other = json;
  other["pipeline"]["schedule"] = "gpipe";
  EXPECT_NE(cost::parse_step_plan(other, "plan").hash, read.hash);
  other["pipeline"]["more"] = 1;
  EXPECT_THROW(cost::parse_step_plan(other, "plan"), DataError);

  search.mesh = parse_mesh("data=2,tensor=2", "mesh");
  const MeshPlan divided = plan_mesh(profile, step, within(kPlenty), search);
  const auto along_data = mesh_plan_to_json(profile, step, divided, within(kPlenty));
  EXPECT_EQ(cost::parse_step_plan(along_data, "plan").mesh, "data=2,tensor=2");
  EXPECT_EQ(along_data.at("profile_hash"), json.at("profile_hash"));
  EXPECT_EQ(along_data.at("batch_size"), 8);
}

}  // namespace
}  // namespace rondo::plan::mesh_plan_test
