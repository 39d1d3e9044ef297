#include "rondo/parallel/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/declared_strategies_options.h"
#include "rondo/parallel/replicas/replicas_options.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "tests/backend/ranks.h"

namespace rondo::registry_test {
namespace {

// Command lines accept exactly the declared strategies.
TEST(AllStrategies, AreAllDeclared) {
  std::set<std::string> declared;
  for (const Declaration& entry : declared_strategies()) declared.insert(entry.name);
  const std::vector<std::string> known = all_strategies().names();
  EXPECT_EQ(declared, std::set<std::string>(known.begin(), known.end()));
  EXPECT_TRUE(declared.contains("zero3_keep"));
}

TEST(AllStrategies, OptionsOfStrategiesByUnitReachTheirStruct) {
  const StrategyRegistry strategies = all_strategies();
  const auto options = strategies.read<ShardedOptions>("hsdp", {{"segment-size", "1KiB"},
                                                                {"comm-schedule", "fifo"},
                                                                {"gradients-in-flight", "4"},
                                                                {"mixed-precision", "param=bfloat16"},
                                                                {"offload", "/disk"},
                                                                {"offload-what", "optimizer"},
                                                                {"reduce-every-pass", "true"},
                                                                {"reshard-after-forward", "false"},
                                                                {"shard-ranks", "2"}});
  EXPECT_EQ(options.segment_bytes, KiB(1));
  EXPECT_EQ(options.schedule, "fifo");
  EXPECT_EQ(options.gradients_in_flight, 4);
  EXPECT_EQ(options.mixed_precision, (MixedPrecisionPolicy{.param_dtype = at::kBFloat16}));
  EXPECT_EQ(options.offload.directory, "/disk");
  EXPECT_FALSE(options.offload.parameters);
  EXPECT_TRUE(options.offload.optimizer && options.reduce_every_pass);
  EXPECT_EQ(options.reshard_ranks, 1);
  EXPECT_EQ(options.shard_ranks, 2);
  EXPECT_EQ(strategies.read<ShardedOptions>("random", {{"strategy-seed", "7"}}).strategy_seed, 7U);
  EXPECT_THROW(strategies.read<ShardedOptions>("zero1", {{"shard-ranks", "2"}}), UsageError);
}

TEST(AllStrategies, OptionsOfDdpReachItsStruct) {
  const auto options = all_strategies().read<MultiWorkerMirroredOptions>(
      "multi_worker_mirrored",
      {{"bucket-size", "5MiB"}, {"codec", "int8"}, {"check-parameters-every", "3"}, {"prefetch", "1"}});
  EXPECT_EQ(options.bucket_bytes, MiB(5));
  EXPECT_EQ(options.codec, "int8");
  EXPECT_EQ(options.check_parameters_every, 3);
  EXPECT_EQ(options.prefetch, 1);
  EXPECT_EQ(all_strategies().read<DdpStrategyOptions>("ddp", {{"codec", "int8"}}).codec, "int8");
}

TEST(AllStrategies, RefusesUnknownCodecOnOneProcess) {
  testing::run_ranks(1, "native", [](Context& context) {
    EXPECT_THROW(all_strategies().make("ddp", context, {{"codec", "int7"}}), UsageError);
  });
}

}  // namespace
}  // namespace rondo::registry_test
