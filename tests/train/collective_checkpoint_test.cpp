#include "rondo/train/collective_checkpoint.h"

#include <gtest/gtest.h>

#include "rondo/backend/collectives.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/memory/tracker.h"
#include "rondo/train/agreement.h"
#include "rondo/train/trainer.h"
#include "tests/all_combinations.h"
#include "tests/backend/ranks.h"
#include "tests/parallel/strategy_told.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"
#include "tests/train/equality_models.h"

// Collective work of ranks with parts of a model outside training: saving and evaluation.
namespace rondo::collective_checkpoint_test {
namespace {

using testing::make_subject;
using testing::run_ranks;

// Returns a source that records when it is produced and lacks `missing` elements.
TensorSource source(const std::string& name, std::vector<std::string>& made, std::int64_t missing = 0) {
  static const std::map<std::string, int> identities{{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}};
  return {name, at::kFloat, {8}, &identities.at(name), [name, &made, missing] {
            made.push_back(name);
            return at::ones({8 - missing});
          }};
}

TEST(CollectiveCheckpoint, FullDiskLeavesNoRankBehind) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::string>> made(2);
  run_ranks(2, "native", [&](Context& context) {
    std::vector<std::string>& mine = made[static_cast<std::size_t>(context.rank())];
    CheckpointContents contents;
    contents.model = {source("a", mine), source("b", mine, /*missing=*/3), source("c", mine)};
    contents.optimizer_tensors = {source("d", mine)};
    // The writer fails between two tensors, as it would on a full disk.
    EXPECT_THROW(save_together(context, directory.path(), 1, contents, 1), AgreedError);
    contents.model[1] = source("b", mine);
    save_together(context, directory.path(), 2, contents, 1);
  });
  const std::vector<std::string> twice{"a", "b", "c", "d", "a", "b", "c", "d"};
  EXPECT_EQ(made[0], twice);
  EXPECT_EQ(made[1], twice);
  const auto newest = newest_checkpoint(directory.path());
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 2);
}

// A scope with a memory limit for all ranks, which are threads of one process.
class LimitedMemory {
 public:
  LimitedMemory() { replica_memory_tracker().set_limit(Bytes{std::uint64_t{1} << 40}); }
  ~LimitedMemory() { replica_memory_tracker().set_limit({}); }
  LimitedMemory(const LimitedMemory&) = delete;
  LimitedMemory& operator=(const LimitedMemory&) = delete;
};

struct Way {
  std::string strategy;
  bool on_hosts = false;  // whether each rank has a host of its own
};

class ShardedCheckpoints : public ::testing::TestWithParam<Way> {};

// Returns the ways of which others differ in details of sharding, or all (`make equality`).
std::vector<Way> ways() {
  std::vector<Way> all{{"zero1"}, {"zero3"}, {"zero3", true}, {"random", true}};
  if (!tests::all_combinations()) return all;
  for (const char* const strategy : {"zero1", "zero2", "zero3_keep"}) all.push_back({strategy, true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, ShardedCheckpoints, ::testing::ValuesIn(ways()), [](const auto& info) {
  return info.param.strategy + (info.param.on_hosts ? "_hosts" : "");
});

// Runs three ranks, whose shares of batches differ.
void on_ranks(const Way& way, const std::function<void(Context&)>& body) {
  const std::vector<int> hosts = way.on_hosts ? std::vector<int>{0, 1, 2} : std::vector<int>{};
  run_ranks(3, way.on_hosts ? "hierarchical(native, gloo)" : "native", body, std::chrono::seconds(60), hosts);
}

TEST_P(ShardedCheckpoints, EvaluationByUnitEqualsTheWhole) {
  for (const std::string name : {"gpt", "bert"}) {
    on_ranks(GetParam(), [&](Context& context) {
      const auto train = [&](bool watched) {
        const testing::Subject subject = make_subject(name);
        const auto strategy = all_strategies().make(GetParam().strategy, context, {});
        Trainer trainer(*strategy, subject.model);
        trainer.compile(testing::adamw());
        trainer.fit(subject.data, {.steps = 3, .batch_size = 4});
        if (watched) {
          const auto whole = trainer.evaluate(*subject.data, {.batch_size = 7});
          const at::Tensor outputs = trainer.predict(*subject.data, {.batch_size = 7});
          barrier(context.world());
          const LimitedMemory limited;
          barrier(context.world());
          EXPECT_EQ(trainer.evaluate(*subject.data, {.batch_size = 7}), whole) << name;
          EXPECT_TRUE(at::equal(trainer.predict(*subject.data, {.batch_size = 7}), outputs)) << name;
          // Training continues as if there had been no evaluation.
          trainer.fit(subject.data, {.steps = 5, .batch_size = 4});
          EXPECT_EQ(trainer.evaluate(*subject.data).size(), whole.size());
          barrier(context.world());
        } else {
          trainer.fit(subject.data, {.steps = 5, .batch_size = 4});
        }
        barrier(context.world());
        return trainer.evaluate(*subject.data);
      };
      EXPECT_EQ(train(true), train(false)) << name;
    });
  }
}

TEST_P(ShardedCheckpoints, ACheckpointHoldsWhatTheWholeModelHas) {
  for (const std::string name : {"gpt", "sharing"}) {
    const TemporaryDirectory directory;
    on_ranks(GetParam(), [&](Context& context) {
      const testing::Subject subject = make_subject(name);
      ShardedOptions options;
      options.find_unused_parameters = name == "sharing";
      const auto strategy = testing::make_strategy(GetParam().strategy, context, options);
      Trainer trainer(*strategy, subject.model);
      trainer.compile(testing::adamw());
      trainer.fit(subject.data, {.steps = 3, .batch_size = 4});
      trainer.save(directory.path(), 1);
      trainer.evaluate(*subject.data);  // gathers the parameters
      if (context.rank() == 0) {
        const NamedTensors saved = map_tensors(find_checkpoint(directory.path()) / "model.safetensors");
        const NamedTensors expected = named_tensors(*subject.model.module);
        EXPECT_EQ(saved.size(), expected.size());
        for (const NamedTensor& tensor : expected) {
          const auto found = std::find_if(saved.begin(), saved.end(), [&](const NamedTensor& other) {
            return other.name == tensor.name;
          });
          ASSERT_NE(found, saved.end()) << tensor.name;
          EXPECT_TRUE(at::equal(found->tensor, tensor.tensor)) << name << " " << tensor.name;
        }
      }
      barrier(context.world());
    });
  }
}

}  // namespace
}  // namespace rondo::collective_checkpoint_test
