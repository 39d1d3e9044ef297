#include <gtest/gtest.h>

#include <filesystem>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/error.h"
#include "rondo/memory/scope.h"
#include "rondo/memory/tracker.h"
#include "tests/parallel/sharded/layers.h"
#include "tests/temporary_directory.h"

namespace rondo::testing::offload_test {
namespace {

ShardedOptions options_with(const std::filesystem::path& directory) {
  ShardedOptions options;
  options.find_unused_parameters = true;
  options.strategy_seed = 7;
  options.offload.directory = directory.string();
  return options;
}

// Returns the sum over ranks, which are threads with separate memory trackers.
std::uint64_t file_bytes_of_all_ranks() {
  std::uint64_t bytes = 0;
  any_replica_tracker([&](MemoryTracker& tracker) { return bytes += tracker.file_bytes(), false; });
  return bytes;
}

TEST(Offload, ChangesNoBitOfTheWeights) {
  const TemporaryDirectory directory;
  for (const std::string backend : {"native", "gloo"}) {
    for (const std::string strategy : {"zero1", "zero3", "random"}) {
      for (const double clip : {0.0, 0.5}) {
        const TrainingPlan plan{.steps = 4, .clip_norm = clip};
        run_ranks(2, backend, [&](Context& context) {
          const auto plain = train_on_ranks(context, strategy, options_with(""), plan);
          const auto offloaded = train_on_ranks(context, strategy, options_with(directory.path()), plan);
          EXPECT_EQ(largest_difference(offloaded, plain), 0) << strategy << " " << backend;
        });
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_EQ(file_bytes_of_all_ranks(), 0U);
}

TEST(Offload, StateAndShardsAreInFiles) {
  track_cpu_allocations();
  const TemporaryDirectory directory;
  for (const std::string backend : {"native", "gloo"}) {
    run_ranks(1, backend, [&](Context& context) {
      const auto strategy = all_strategies().make("zero3", context, options_with(directory.path()));
      Layers model(128);
      std::uint64_t parameter_bytes = 0;
      for (const at::Tensor& parameter : distinct_parameters(*model)) parameter_bytes += parameter.nbytes();
      const auto prepared = strategy->prepare(model.ptr());
      const auto optimizer = make_adamw(prepared->module());
      EXPECT_GE(replica_memory_tracker().file_bytes(), parameter_bytes);
      const auto in_memory = [] { return replica_memory_tracker().usage()[MemoryCategory::optimizer_state]; };
      const std::uint64_t before = in_memory();
      for (int step = 0; step < 2; ++step) {
        optimizer->zero_grad();
        prepared->begin_step({.samples = 12, .gradients_are_read = true});
        const Batch batch = joint_batch(12, static_cast<std::uint64_t>(step));
        mean_loss(model(batch.input), batch).backward();
        prepared->finish_backward();
        const MemoryScope scope(MemoryCategory::optimizer_state);
        prepared->step(*optimizer);
      }
      EXPECT_LT(in_memory(), before + parameter_bytes / 50) << "two moments take " << 2 * parameter_bytes;
      // Two moments of each trained parameter, and the shards.
      EXPECT_GT(replica_memory_tracker().file_bytes(), parameter_bytes * 5 / 2);
    });
  }
  EXPECT_EQ(file_bytes_of_all_ranks(), 0U);
}

TEST(Offload, ADirectoryThatCannotBeIsNamed) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = all_strategies().make("zero1", context, options_with("/proc/offload"));
    Layers model;
    EXPECT_NE(
        message_of([&] { strategy->prepare(model.ptr()); }).find("offload: /proc/offload is no directory"),
        std::string::npos);
  });
}

}  // namespace
}  // namespace rondo::testing::offload_test
