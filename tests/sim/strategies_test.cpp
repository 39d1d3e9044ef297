// Every strategy on simulated devices has the losses of the CPU: with all ranks on one device, and with one
// device per rank.
#include <gtest/gtest.h>

#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::strategies_test {
namespace {

// Adds the options that all strategies support: accumulation, clipping, and recomputed units.
Way with_all(Way way) {
  way.checkpointed = "all";
  way.accumulate = 2;
  way.clip_norm = 1;
  return way;
}

std::vector<Way> ways() {
  std::vector<Way> all = {
      {.name = "ddp"},
      {.name = "zero1", .strategy = "zero1"},
      {.name = "zero2", .strategy = "zero2"},
      {.name = "zero3", .strategy = "zero3"},
      {.name = "zero3_keep", .strategy = "zero3_keep"},
      {.name = "hsdp_copy_a_rank", .strategy = "hsdp", .options = {{"shard-ranks", "1"}}},
      {.name = "hsdp_one_copy", .strategy = "hsdp", .options = {{"shard-ranks", "2"}}},
      {.name = "random", .strategy = "random", .options = {{"strategy-seed", "7"}}},
      {.name = "tpu", .strategy = "tpu"},
      {.name = "multi_worker_mirrored", .strategy = "multi_worker_mirrored"},
      {.name = "local_sgd", .strategy = "local_sgd", .options = {{"sync-period", "2"}}},
      {.name = "tensor", .dimension = "tensor"},
      {.name = "tensor_sequence", .options = {{"sequence-parallel", "true"}}, .dimension = "tensor"},
      {.name = "context", .dimension = "context"},
      {.name = "expert", .dimension = "expert", .experts = 4},
  };
  for (Way& way : all) way = with_all(way);
  for (const std::string schedule : {"1f1b", "gpipe", "zb_h1"}) {
    all.push_back({.name = "pipeline_" + schedule,
                   .options = {{"pipeline-schedule", schedule}, {"micro-batches", "4"}},
                   .dimension = "pipeline",
                   .clip_norm = 1});
  }
  all.push_back({.name = "ddp_dropout", .dropout = 0.2, .checkpointed = "all"});
  all.push_back({.name = "zero3_dropout", .strategy = "zero3", .dropout = 0.2, .checkpointed = "all"});
  return all;
}

class EachStrategy : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(OnSim, EachStrategy, ::testing::ValuesIn(ways()),
                         [](const ::testing::TestParamInfo<Way>& info) { return info.param.name; });

TEST_P(EachStrategy, OnOneDeviceOrOneEach) {
  EXPECT_EQ(run_ranks(2,
                      [](Context& context) {
                        expect_as_on_cpu(context, GetParam(), {device(0), device(context.rank())});
                      }),
            0);
}

std::vector<Way> ways_alone() {
  return {
      with_all({.name = "one_device", .strategy = "one_device"}),
      with_all({.name = "zero3_alone", .strategy = "zero3"}),
      {.name = "one_device_dropout", .strategy = "one_device", .dropout = 0.2, .checkpointed = "all"},
      {.name = "mirrored", .strategy = "mirrored", .options = {{"devices", "sim:0,sim:1"}}},
      {.name = "central_storage", .strategy = "central_storage", .options = {{"devices", "sim:0"}}},
      {.name = "central_storage_of_two", .strategy = "central_storage", .options = {{"replicas", "2"}}},
  };
}

class InOneProcess : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(OnSim, InOneProcess, ::testing::ValuesIn(ways_alone()),
                         [](const ::testing::TestParamInfo<Way>& info) { return info.param.name; });

TEST_P(InOneProcess, TrainsAsOnTheCpu) {
  EXPECT_EQ(run_ranks(1,
                      [](Context& context) {
                        Way on_cpu = GetParam();
                        on_cpu.options.clear();
                        if (on_cpu.options != GetParam().options) on_cpu.strategy = "one_device";
                        const Figures wanted = train(context, on_cpu, c10::kCPU);
                        expect_near(context, train(context, GetParam(), device(0)), wanted, GetParam());
                      }),
            0);
}

// Copies and waits of the host make a step slow: a group of one rank must not add any.
TEST(SimCounts, OneShardCopiesNoMoreThanOneDevice) {
  EXPECT_EQ(run_ranks(1,
                      [](Context& context) {
                        std::vector<Counts> each;
                        for (const std::string strategy : {"one_device", "zero1"}) {
                          device(0);
                          const Way way{.name = strategy, .strategy = strategy};
                          const Counts before = read_counts();
                          train(context, way, device(0));
                          Counts counts = read_counts();
                          counts.host_to_device -= before.host_to_device;
                          counts.device_to_host -= before.device_to_host;
                          counts.synchronisations -= before.synchronisations;
                          printf("%s: %ld to the device, %ld to the host, %ld synchronisations\n",
                                 strategy.c_str(), counts.host_to_device, counts.device_to_host,
                                 counts.synchronisations);
                          fflush(stdout);
                          each.push_back(counts);
                        }
                        EXPECT_LE(each[1].host_to_device, each[0].host_to_device);
                        EXPECT_LE(each[1].device_to_host, each[0].device_to_host);
                        EXPECT_LE(each[1].synchronisations, each[0].synchronisations);
                      }),
            0);
}

}  // namespace
}  // namespace rondo::sim::strategies_test
