#include "rondo/simulate/step_simulator.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/cost/synthetic.h"
#include "rondo/simulate/cluster.h"
#include "tests/errors.h"

namespace rondo::simulate::step_simulator_test {
namespace {

using cost::JobKind;
using cost::Strategy;

// Two units, 1 s forward and 2 s backward each; a gather or a reduction of a unit takes `link_s`.
cost::StepModel two_units(double link_s, int segments = 1, double contention = 0) {
  cost::Profile profile;
  for (const char* name : {"a", "b"}) {
    cost::UnitProfile unit;
    unit.name = name;
    unit.forward_s = 1;
    unit.backward_s = 2;
    unit.recompute_s = 1;
    unit.parameter_bytes = unit.gradient_bytes = 1000;
    unit.optimizer_bytes = 2000;
    unit.activation_bytes = 100;
    unit.checkpointed_activation_bytes = 10;
    unit.forward_workspace_bytes = 5;
    unit.backward_workspace_bytes = 7;
    profile.units.push_back(unit);
  }
  profile.link = cost::ring_link(2, 0, 500 / link_s, contention);
  profile.link.curves.fill(cost::CostCurve({{1, link_s / 1000}, {1000, link_s}}, "c"));
  profile.link.saturating_bytes = 1;
  cost::StepOptions options;
  options.ranks = 2;
  options.segments_per_collective = segments;
  return cost::make_step_model(profile, options);
}

int job_of(const cost::StepModel& model, JobKind kind, int unit) {
  for (std::size_t j = 0; j < model.jobs.size(); ++j) {
    if (model.jobs[j].kind == kind && model.jobs[j].unit == unit) return static_cast<int>(j);
  }
  return -1;
}

// Returns a plan of two units: a is gathered twice and b is kept.
Candidate sharded_plan(const cost::StepModel& model) {
  Candidate plan{{{Strategy::zero3, false}, {Strategy::zero3_keep, false}},
                 std::vector<std::vector<Launch>>(7)};
  plan.launches[0] = {{job_of(model, JobKind::gather_forward, 0), 1}};
  plan.launches[1] = {{job_of(model, JobKind::gather_forward, 1), 1}};
  plan.launches[3] = {{job_of(model, JobKind::gather_backward, 0), 1}};
  plan.launches[4] = {{job_of(model, JobKind::reduce_scatter, 1), 1}};
  plan.launches[5] = {{job_of(model, JobKind::reduce_scatter, 0), 1}};
  return plan;
}

// Slots: 0 update, 1 and 2 forward of a and b, 3 and 4 backward of b and a, 5 epilogue, 6 end.
Candidate ddp_plan(const cost::StepModel& model) {
  Candidate plan{{{Strategy::ddp, false}, {Strategy::ddp, false}}, std::vector<std::vector<Launch>>(7)};
  plan.launches[4] = {{job_of(model, JobKind::all_reduce, 1), 1}};
  plan.launches[5] = {{job_of(model, JobKind::all_reduce, 0), 1}};
  return plan;
}

Candidate zero2_plan(const cost::StepModel& model) {
  Candidate plan{{{Strategy::zero2, false}, {Strategy::zero2, false}}, std::vector<std::vector<Launch>>(7)};
  plan.launches[0] = {{job_of(model, JobKind::gather_updated, 0), 1},
                      {job_of(model, JobKind::gather_updated, 1), 1}};
  plan.launches[4] = {{job_of(model, JobKind::reduce_scatter, 1), 1}};
  plan.launches[5] = {{job_of(model, JobKind::reduce_scatter, 0), 1}};
  return plan;
}

TEST(StepSimulator, DataParallelByHand) {
  const cost::StepModel model = two_units(1.5);
  const Candidate plan = ddp_plan(model);
  check_plan(model, plan);
  const StepResult result = simulate_step(model, plan, UINT64_MAX);
  // a's backward hides b's all-reduce; a's own is exposed: 6 s of compute and 1.5 s.
  EXPECT_DOUBLE_EQ(result.step_s, 7.5);
  EXPECT_DOUBLE_EQ(result.exposed_s, 1.5);
  EXPECT_DOUBLE_EQ(result.communication_s, 3);
  // 2 x (P + O), b's gradients, and a's autograd gradients beside the buffer of their copy.
  EXPECT_EQ(result.peak_bytes, 6000U + 1000 + 2000);
}

TEST(StepSimulator, ContentionSlowsWhatOverlaps) {
  const cost::StepModel model = two_units(1, 1, 0.25);
  // 1 s of link traffic beside 2 s of compute takes a quarter of that second from compute.
  const StepResult result = simulate_step(model, ddp_plan(model), UINT64_MAX);
  EXPECT_DOUBLE_EQ(result.step_s, 6 + 0.25 + 1);
  EXPECT_DOUBLE_EQ(result.exposed_s, 1);
  EXPECT_DOUBLE_EQ(result.slowed_s, 0.25);
}

// If the computing thread communicates, that counts as a wait, not as slower compute.
TEST(StepSimulator, EngineWithoutThreadExposesCommunication) {
  cost::StepModel model = two_units(1, 1, 0.25);
  model.profile.link.parameters_in_place = true;
  const StepResult result = simulate_step(model, ddp_plan(model), UINT64_MAX);
  EXPECT_DOUBLE_EQ(result.exposed_s, 1.25);
  EXPECT_DOUBLE_EQ(result.slowed_s, 0);
}

// The update takes 1 s in total, as each rank updates half of each unit.
TEST(StepSimulator, ParametersTravelBesideTheUpdate) {
  cost::Profile profile = two_units(1).profile;
  for (cost::UnitProfile& unit : profile.units) unit.optimizer_s = 1;
  const cost::StepModel model = cost::make_step_model(profile, two_units(1).options);
  const Candidate plan = zero2_plan(model);
  // The update, two passes of each unit, the last reduction: no slot waits for a gather.
  StepResult result = simulate_step(model, plan, UINT64_MAX);
  EXPECT_DOUBLE_EQ(result.step_s, 1 + 6 + 1);
  EXPECT_DOUBLE_EQ(result.exposed_s, 1);
  cost::Profile contended = profile;
  contended.link.contention = 0.5;
  result = simulate_step(cost::make_step_model(contended, model.options), plan, UINT64_MAX);
  // Two seconds of gathers during the update and a's forward, one second of a reduction during a's backward.
  EXPECT_DOUBLE_EQ(result.slowed_s, 0.5 * 3);

  result = simulate_step(model, sharded_plan(model), UINT64_MAX);
  EXPECT_DOUBLE_EQ(result.step_s, 1 + 1 + 6 + 1);
  EXPECT_DOUBLE_EQ(result.exposed_s, 2) << "a's gather cannot be asked for before the update is over";
}

TEST(StepSimulator, APeakBelowAllActivationsAndGradients) {
  cost::Profile profile = two_units(1).profile;
  for (cost::UnitProfile& unit : profile.units) unit.backward_workspace_bytes = -40;
  const cost::StepModel model = cost::make_step_model(profile, two_units(1).options);
  const Candidate plan = zero2_plan(model);
  // Sharded units, so that no copy hides it: a's activations, and 60 of b's 100; both are gathered.
  Timeline timeline;
  simulate_step(model, sharded_plan(model), UINT64_MAX, &timeline);
  EXPECT_EQ(timeline.slots[3].memory.total(), 3000U + 2000 + 100 + 60 + 1000);
  EXPECT_EQ(timeline.slots[3].memory.activations, 160U);
  EXPECT_EQ(timeline.slots[4].memory.total(), 3000U + 1000 + 500 + 1000 + 60 + 1000);
  EXPECT_EQ(timeline.slots[5].memory.total(), 3000U + 2 * 500 + 1000)
      << "all but a's gradient was given back";
  timeline = {};
  simulate_step(model, plan, UINT64_MAX, &timeline);
  EXPECT_EQ(timeline.slots[6].memory.total(), 2 * 2500U);
}

TEST(UnitForecast, DividesWaitsAmongUnitsWithLateSegments) {
  const cost::StepModel model = two_units(1.5);
  Timeline timeline;
  const StepResult result = simulate_step(model, ddp_plan(model), UINT64_MAX, &timeline);
  const auto ddp = forecast_units(model, timeline);
  EXPECT_DOUBLE_EQ(ddp[0].exposed_s, 1.5);  // a's all-reduce, after the last backward
  EXPECT_DOUBLE_EQ(ddp[1].exposed_s, 0);    // a's backward hides b's all-reduce
  EXPECT_EQ(std::max(ddp[0].peak_bytes, ddp[1].peak_bytes), result.peak_bytes);

  const Candidate plan = sharded_plan(model);
  timeline = {};
  const StepResult sharded = simulate_step(model, plan, UINT64_MAX, &timeline);
  const auto units = forecast_units(model, timeline);
  EXPECT_DOUBLE_EQ(units[0].exposed_s, 1.5 + 1.5);  // before its forward, and its reduction at the end
  EXPECT_DOUBLE_EQ(units[1].exposed_s, 0.5);        // the rest of its gather, after a's forward
  EXPECT_DOUBLE_EQ(units[0].exposed_s + units[1].exposed_s, sharded.exposed_s);
}

// A wait for memory counts for the unit whose gradients are reduced.
TEST(UnitForecast, CountsWaitsForMemory) {
  const cost::StepModel model = cost::make_step_model(cost::random_profile(5, 4, 4), {.ranks = 4});
  for (const cost::Strategy strategy : {Strategy::zero2, Strategy::zero3}) {
    Candidate plan{{}, std::vector<std::vector<Launch>>(static_cast<std::size_t>(model.slots.count()))};
    for (int unit = 0; unit < model.units(); ++unit) {
      plan.choices.push_back(nearest_choice(model, unit, {strategy, false}));
      for (const int j : model.cost_of(unit, plan.choices.back()).jobs) {
        const cost::Job& job = model.jobs[static_cast<std::size_t>(j)];
        const int slot = job.is_gather_buffer() ? job.last : job.first;
        plan.launches[static_cast<std::size_t>(slot)].push_back({j, job.segments});
      }
    }
    Timeline timeline;
    // Every possible wait for memory happens.
    const StepResult tight = simulate_step(model, plan, 0, &timeline);
    double exposed = 0;
    for (const UnitForecast& unit : forecast_units(model, timeline)) exposed += unit.exposed_s;
    EXPECT_NEAR(exposed, tight.exposed_s, 1e-9);
    EXPECT_NEAR(tight.step_s, tight.compute_s + tight.exposed_s + tight.slowed_s, 1e-9);
  }
}

TEST(StepSimulator, ShardedByHand) {
  const cost::StepModel model = two_units(1);
  const Candidate plan = sharded_plan(model);
  check_plan(model, plan);
  Timeline timeline;
  const StepResult result = simulate_step(model, plan, UINT64_MAX, &timeline);
  EXPECT_DOUBLE_EQ(result.step_s, 1 + 6 + 1);  // the first gather and the last reduction are exposed
  // During b's backward: both shards of parameters and optimizer state, b and the gathered a, b's gradient,
  // activations, workspace.
  EXPECT_EQ(timeline.slots[3].memory.total(), 2 * 1500U + 2000 + 1000 + 200 + 7);
  EXPECT_EQ(timeline.slots[2].memory.gathered, 1000U);        // a is freed after its forward
  EXPECT_EQ(timeline.slots[5].memory.total(), 4000U + 1000);  // a's gradient is in flight
  EXPECT_EQ(timeline.slots[6].memory.total(), 4000U);
  EXPECT_EQ(timeline.segments.size(), 5U);
}

TEST(StepSimulator, ComputeWaitsUntilGradientsLeave) {
  const cost::StepModel model = two_units(3);
  const Candidate plan = zero2_plan(model);
  const StepResult free = simulate_step(model, plan, UINT64_MAX);
  // Both gradients during a's backward, a's copy, and room for b's shard.
  EXPECT_EQ(free.peak_bytes, 2 * 2000U + 2000 + 1000 + 500);
  const StepResult tight = simulate_step(model, plan, free.peak_bytes - 1);
  EXPECT_FALSE(tight.fits);  // b's gradient is reduced only during a's backward
}

// A slot names the gradients that must be freed for the limit, even if they are already freed.
TEST(StepSimulator, SaysWhatMustBeGoneForTheLimit) {
  cost::StepOptions options{.ranks = 4};
  options.buffers = cost::Buffers::unit;
  const cost::StepModel model = cost::make_step_model(cost::random_profile(5, 6, 4), options);
  Candidate plan{{}, std::vector<std::vector<Launch>>(static_cast<std::size_t>(model.slots.count()))};
  for (int unit = 0; unit < model.units(); ++unit) {
    plan.choices.push_back({Strategy::zero2, false});
    for (const int j : model.cost_of(unit, plan.choices.back()).jobs) {
      const cost::Job& job = model.jobs[static_cast<std::size_t>(j)];
      plan.launches[static_cast<std::size_t>(job.first)].push_back({j, job.segments});
    }
  }
  Timeline free;
  simulate_step(model, plan, UINT64_MAX, &free);
  for (const SlotRecord& slot : free.slots) EXPECT_EQ(slot.needs_gone, -1);
  Timeline least;
  const std::uint64_t limit = simulate_step(model, plan, 0, &least).peak_bytes;
  Timeline tight;
  ASSERT_TRUE(simulate_step(model, plan, limit, &tight).fits);
  bool any = false;
  for (std::size_t i = 0; i < tight.slots.size(); ++i) {
    const SlotRecord& slot = tight.slots[i];
    EXPECT_GE(slot.needs_gone, slot.waited_for);
    if (slot.needs_gone < 0) continue;
    any = true;
    EXPECT_LE(tight.segments[static_cast<std::size_t>(slot.needs_gone)].end_s, slot.begin_s);
  }
  EXPECT_TRUE(any);
}

TEST(StepSimulator, SegmentsOfAUnitOrOfThemselves) {
  cost::StepModel model = two_units(1, 4);
  Candidate plan{{{Strategy::zero3_keep, false}, {Strategy::zero3_keep, false}},
                 std::vector<std::vector<Launch>>(7)};
  plan.launches[0] = {{job_of(model, JobKind::gather_forward, 0), 4},
                      {job_of(model, JobKind::gather_forward, 1), 1}};
  plan.launches[1] = {{job_of(model, JobKind::gather_forward, 1), 3}};
  plan.launches[4] = {{job_of(model, JobKind::reduce_scatter, 1), 4}};
  plan.launches[5] = {{job_of(model, JobKind::reduce_scatter, 0), 4}};
  check_plan(model, plan);
  Timeline timeline;
  simulate_step(model, plan, UINT64_MAX, &timeline);
  EXPECT_EQ(timeline.slots[0].memory.gathered, 2000U);
  model.options.buffers = cost::Buffers::segment;
  timeline = {};
  simulate_step(model, plan, UINT64_MAX, &timeline);
  EXPECT_EQ(timeline.slots[0].memory.gathered, 1250U);
}

TEST(CheckPlan, NamesWhatIsNotLegal) {
  const cost::StepModel model = two_units(1);
  const auto expect = [&](const Candidate& plan, const std::vector<const char*>& facts) {
    testing::expect_facts(testing::message_of<UsageError>([&] { check_plan(model, plan); }), facts);
  };
  const Candidate good = ddp_plan(model);
  Candidate plan = good;
  plan.launches[5].clear();
  expect(plan, {"all_reduce", "'a'", "0 segments", "1"});
  plan = good;
  std::swap(plan.launches[4], plan.launches[3]);
  expect(plan, {"all_reduce", "'b'", "1 segments", "slot 3", "4 to 5"});
  plan = good;
  plan.launches[5].push_back(plan.launches[4][0]);
  expect(plan, {"2 segments", "1"});
  plan = good;
  plan.choices.pop_back();
  expect(plan, {"1 units", "2"});
  plan = good;
  plan.choices[1] = {Strategy::zero3, false};
  expect(plan, {"'b'", "zero3"});
}

TEST(Cluster, EqualRanksAreOneRank) {
  for (const cost::Buffers buffers : {cost::Buffers::unit, cost::Buffers::segment}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      cost::StepOptions options;
      options.ranks = 8;
      options.buffers = buffers;
      const cost::StepModel model = cost::make_step_model(cost::random_profile(seed, 6, 8), options);
      Candidate plan{{}, std::vector<std::vector<Launch>>(static_cast<std::size_t>(model.slots.count()))};
      for (int unit = 0; unit < model.units(); ++unit) {
        plan.choices.push_back(
            nearest_choice(model, unit, {unit % 2 == 0 ? Strategy::zero3 : Strategy::zero2, unit % 3 == 0}));
        for (const int j : model.cost_of(unit, plan.choices.back()).jobs) {
          const cost::Job& job = model.jobs[static_cast<std::size_t>(j)];
          plan.launches[static_cast<std::size_t>(job.is_gather_buffer() ? job.last : job.first)].push_back(
              {j, job.segments});
        }
      }
      const StepResult free = simulate_step(model, plan, UINT64_MAX);
      for (const std::uint64_t limit : {UINT64_MAX, free.peak_bytes - free.peak_bytes / 50}) {
        const StepResult one = simulate_step(model, plan, limit);
        const ClusterResult all = simulate_cluster(model, plan, limit, {});
        EXPECT_NEAR(all.step_s, one.step_s, 1e-9 * one.step_s) << seed;
        const ClusterResult slow = simulate_cluster(model, plan, limit, {0.1, 1, 2, seed});
        EXPECT_GT(slow.step_s, 1.3 * one.compute_s);
      }
    }
  }
}

}  // namespace
}  // namespace rondo::simulate::step_simulator_test
