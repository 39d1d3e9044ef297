#include "rondo/simulate/closed_forms.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/cost/synthetic.h"
#include "rondo/simulate/cluster.h"

namespace rondo::simulate::topology_test {
namespace {

using cost::Collective;

TEST(Topology, RingOnOneHostIsItsClosedForm) {
  const Topology host = parse_topology("host:inside=1e9,inside_latency=10us", 8);
  EXPECT_NEAR(collective_seconds(host, "ring", Collective::all_reduce, 8e6),
              14 * 10e-6 + 2 * 7.0 / 8 * 8e6 / 1e9, 1e-9);
  EXPECT_NEAR(collective_seconds(host, "ring", Collective::all_gather, 8e6), 7 * 10e-6 + 7.0 / 8 * 8e6 / 1e9,
              1e-9);
}

TEST(Topology, TorusIsRingsAlongItsSides) {
  const Topology torus = parse_topology("torus_2d:inside=1e9,inside_latency=1us", 64);
  EXPECT_NEAR(collective_seconds(torus, "torus_2d", Collective::all_reduce, 64e6),
              2 * (14e-6 + 63.0 / 64 * 64e6 / 1e9), 1e-9);
  const Topology cube = parse_topology("torus_3d:inside=1e9,inside_latency=1us", 64);
  EXPECT_NEAR(collective_seconds(cube, "torus_2d", Collective::all_gather, 64e6),
              9e-6 + 63.0 / 64 * 64e6 / 1e9, 1e-9);
}

TEST(Topology, HierarchyPaysWhereTheWireBetweenIsShared) {
  const Topology slow = parse_topology("slow_groups:local=8,inside=200e9,between=1e9", 64);
  const double flat = collective_seconds(slow, "halving_doubling", Collective::all_reduce, 1e9);
  const double hierarchical = collective_seconds(slow, "hierarchical", Collective::all_reduce, 1e9);
  EXPECT_LT(hierarchical, flat / 4);
  // One group's wire carries 2 (H - 1) / H of the data.
  EXPECT_NEAR(hierarchical, 2 * 7.0 / 8 * 1.0, 0.05);
}

TEST(Topology, AutoIsNeverSlowerAndCurvesAreSound) {
  for (const char* kind : {"host", "fat_tree", "torus_2d", "torus_3d", "slow_groups"}) {
    for (const int ranks : {1, 8, 64, 1024, 16384}) {
      const Topology topology = parse_topology(kind, ranks);
      for (const Collective c : cost::kCollectives) {
        for (const double bytes : {1e3, 1e9}) {
          const double best = collective_seconds(topology, "auto", c, bytes);
          EXPECT_LE(best, collective_seconds(topology, "ring", c, bytes));
        }
      }
      EXPECT_NO_THROW(link_of(topology, "auto", 0)) << kind << ranks;
    }
  }
}

TEST(Topology, BadSettingsAreNamed) {
  EXPECT_THROW(parse_topology("mesh", 8), UsageError);
  EXPECT_THROW(parse_topology("fat_tree:local=3", 8), UsageError);
  EXPECT_THROW(parse_topology("fat_tree:speed=3", 8), UsageError);
  EXPECT_THROW(parse_topology("fat_tree:between=-1", 8), UsageError);
  EXPECT_THROW(collective_seconds(parse_topology("host", 8), "torus_2d", Collective::all_reduce, 1),
               UsageError);
  EXPECT_THROW(collective_seconds(parse_topology("host", 8), "double_binary_tree", Collective::all_gather, 1),
               UsageError);
}

TEST(Failures, DrawnGoodputIsTheExpectedOne) {
  const FailureModel model{50000 * 3600.0, 16384, 60, 120};
  const double interval = daly_interval_s(model);
  EXPECT_NEAR(interval, young_interval_s(model), 0.1 * interval);
  EXPECT_NEAR(simulated_goodput(model, interval, 20000 * interval, 3), expected_goodput(model, interval),
              0.005);
  // Daly's interval has the smallest loss.
  for (const double factor : {0.5, 0.8, 1.25, 2.0})
    EXPECT_LT(expected_goodput(model, interval * factor), expected_goodput(model, interval));
}

TEST(PipelineStep, IdlesByItsSchedule) {
  const cost::Profile profile = cost::synthetic_profile("gpt:layers=8,dim=512", 8);
  const PipelineStep plain = pipeline_step(profile, {.stages = 4, .micro_batches = 12});
  EXPECT_NEAR(plain.idle_share, 3.0 / 15, 0.01);
  EXPECT_LT(pipeline_step(profile, {.stages = 4, .micro_batches = 12, .schedule = "interleaved"}).idle_share,
            plain.idle_share);
  EXPECT_LT(pipeline_step(profile, {.stages = 4, .micro_batches = 12, .schedule = "zb_h1"}).idle_share,
            plain.idle_share);
  EXPECT_GT(pipeline_step(profile, {.stages = 4, .micro_batches = 12, .schedule = "gpipe"}).peak_bytes,
            plain.peak_bytes);
  EXPECT_GT(pipeline_step(profile, {.stages = 4, .micro_batches = 12, .message_s = 1}).step_s, plain.step_s);
  EXPECT_THROW(pipeline_step(profile, {.stages = 0, .micro_batches = 12}), UsageError);
}

TEST(ClosedForms, ServersAreTheBottleneckOfManyWorkers) {
  const cost::Profile profile = cost::synthetic_profile("gpt:layers=8,dim=512", 8);
  const auto step = [&](int workers, int servers) {
    return parameter_server_step(profile, {workers, servers, 1e9, 1e9, true}).step_s;
  };
  EXPECT_GT(step(16, 1), 1.9 * step(8, 1));
  EXPECT_LT(step(16, 16), 1.1 * step(1, 1));
}

}  // namespace
}  // namespace rondo::simulate::topology_test
