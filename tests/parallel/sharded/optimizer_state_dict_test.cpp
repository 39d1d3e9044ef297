#include "rondo/strategy/state_dict.h"

#include <gtest/gtest.h>

#include <map>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "tests/errors.h"
#include "tests/parallel/sharded/layers.h"
#include "tests/parallel/sharded/state_copies.h"

// Optimizer states under every strategy, compared with one optimizer in one process.
namespace rondo::testing::optimizer_state_dict_test {
namespace {

OptimizerSnapshot copy_of(const OptimizerSnapshot& state) {
  OptimizerSnapshot copy{state.description, {}};
  for (const NamedTensor& entry : state.tensors)
    copy.tensors.push_back({entry.name, entry.tensor.detach().clone()});
  return copy;
}

ShardedState copy_of(const ShardedState& state) {
  ShardedState copy = state;
  for (Shard& shard : copy.optimizer) shard.local = shard.local.detach().clone();
  return copy;
}

std::map<std::string, at::Tensor> by_name(const OptimizerSnapshot& state) {
  std::map<std::string, at::Tensor> result;
  for (const NamedTensor& entry : state.tensors) result[entry.name] = entry.tensor;
  return result;
}

// Returns the state after two steps on the joint batches.
OptimizerSnapshot state_of_one_process() {
  Layers model;
  const auto optimizer = make_adamw(*model);
  for (int step = 0; step < 2; ++step) {
    optimizer->zero_grad();
    const Batch batch = joint_batch(12, static_cast<std::uint64_t>(step));
    mean_loss(model(batch.input), batch).backward();
    optimizer->step();
  }
  return copy_of(snapshot_optimizer("optimizer", *optimizer, named_tensors(*model)));
}

TEST(OptimizerStateDict, FullStateEqualsOneProcess) {
  const OptimizerSnapshot alone = state_of_one_process();
  const auto expected = by_name(alone);
  ASSERT_TRUE(expected.contains("optimizer/layer0.linear.weight/exp_avg"));
  ASSERT_FALSE(expected.contains("optimizer/unused.weight/exp_avg"));
  for (const std::string backend : {"native", "gloo"}) {
    for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3", "random"}) {
      run_ranks(3, backend, [&](Context& context) {
        RankTraining training(context, strategy, state_options());
        training.step(0);
        training.step(1);
        const OptimizerSnapshot state = full_optimizer_state_dict(*training.prepared, *training.optimizer);
        EXPECT_EQ(state.description, alone.description) << strategy << " " << backend;
        ASSERT_EQ(state.tensors.size(), expected.size()) << strategy << " " << backend;
        for (const auto& [name, tensor] : by_name(state)) {
          ASSERT_TRUE(expected.contains(name)) << name;
          EXPECT_EQ(tensor.sizes(), expected.at(name).sizes()) << name;
          EXPECT_LT(largest_difference(tensor, expected.at(name)), kTolerance) << strategy << " " << name;
        }
        barrier(context.world());
      });
    }
  }
}

TEST(OptimizerStateDict, LoadsUnderAnotherStrategyAndWorld) {
  const std::vector<at::Tensor> expected = train_alone({.steps = 4});
  std::vector<ModelTensor> weights;
  OptimizerSnapshot state;
  run_ranks(2, "gloo", [&](Context& context) {
    RankTraining training(context, "zero3", state_options());
    training.step(0);
    training.step(1);
    const auto full_weights = copies_of(full_state_dict(*training.prepared));
    const auto full = copy_of(full_optimizer_state_dict(*training.prepared, *training.optimizer));
    if (context.rank() == 0) {
      weights = full_weights;
      state = full;
    }
    barrier(context.world());
  });
  struct Layout {
    std::string strategy;
    int ranks;
    std::string backend;
  };
  for (const Layout& to : std::vector<Layout>{{"zero2", 1, "native"},
                                              {"ddp", 2, "native"},
                                              {"zero1", 3, "native"},
                                              {"zero3_keep", 3, "gloo"},
                                              {"random", 4, "gloo"}}) {
    run_ranks(to.ranks, to.backend, [&](Context& context) {
      RankTraining training(context, to.strategy, state_options());
      load_full_state_dict(*training.prepared, weights);
      load_full_optimizer_state_dict(*training.prepared, *training.optimizer, state);
      training.step(2);
      training.step(3);
      training.prepared->unshard();
      EXPECT_LT(largest_difference(training.model->parameters(), expected), kTolerance)
          << to.strategy << " on " << to.ranks;
      barrier(context.world());
    });
  }
}

TEST(OptimizerStateDict, ShardsRoundTripThroughTheFullState) {
  for (const std::string backend : {"native", "gloo"}) {
    run_ranks(2, backend, [&](Context& context) {
      RankTraining training(context, "zero3", state_options());
      PreparedModel& model = *training.prepared;
      training.step(0);
      training.step(1);
      const auto weights = copies_of(full_state_dict(model));
      const auto full = by_name(copy_of(full_optimizer_state_dict(model, *training.optimizer)));
      const auto shards = copy_of(sharded_optimizer_state_dict(model, *training.optimizer));
      ASSERT_EQ(shards.optimizer.size(), full.size());
      std::int64_t here = 0;
      std::int64_t elements = 0;
      for (const Shard& shard : shards.optimizer) {
        EXPECT_EQ(shard.global_sizes, full.at(shard.name).sizes()) << shard.name;
        EXPECT_TRUE(at::equal(shard.local, cut(full.at(shard.name), shard))) << shard.name;
        here += shard.elements();
        elements += full.at(shard.name).numel();
      }
      EXPECT_LT(here, elements);

      training.step(2);
      const auto after = copies_of(full_state_dict(model));
      load_full_state_dict(model, weights);
      load_sharded_optimizer_state_dict(model, *training.optimizer, shards);
      barrier(context.world());
      training.step(2);
      const auto again = full_state_dict(model);
      for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_TRUE(at::equal(again[i].tensor, after[i].tensor)) << after[i].name << " " << backend;
      barrier(context.world());
    });
  }
}

TEST(OptimizerStateDict, MismatchIsNamedAndChangesNothing) {
  ShardedState of_three_ranks;
  run_ranks(3, "gloo", [&](Context& context) {
    RankTraining training(context, "zero3", state_options());
    training.step(0);
    const auto shards = copy_of(sharded_optimizer_state_dict(*training.prepared, *training.optimizer));
    if (context.rank() == 0) of_three_ranks = shards;
    barrier(context.world());
  });
  run_ranks(2, "gloo", [&](Context& context) {
    RankTraining training(context, "zero3", state_options());
    PreparedModel& model = *training.prepared;
    training.step(0);
    const auto before = copy_of(full_optimizer_state_dict(model, *training.optimizer));
    const auto shapes =
        message_of([&] { load_sharded_optimizer_state_dict(model, *training.optimizer, of_three_ranks); });
    // A third of every tensor is missing.
    expect_facts(shapes, {"'optimizer'", "'optimizer/layer0.linear.weight/exp_avg'", "[7, 7]"});

    auto incomplete = copy_of(before);
    const std::string lost = incomplete.tensors.back().name;
    incomplete.tensors.pop_back();
    const auto missing =
        message_of([&] { load_full_optimizer_state_dict(model, *training.optimizer, incomplete); });
    EXPECT_NE(missing.find("tensor '" + lost + "' is missing"), std::string::npos) << missing;

    auto renamed = copy_of(before);
    renamed.description["groups"][0]["parameters"][0] = "inptu.weight";
    const auto names =
        message_of([&] { load_full_optimizer_state_dict(model, *training.optimizer, renamed); });
    EXPECT_NE(names.find("'inptu.weight'"), std::string::npos) << names;

    const auto after = full_optimizer_state_dict(model, *training.optimizer);
    EXPECT_EQ(after.description, before.description);
    for (std::size_t i = 0; i < before.tensors.size(); ++i)
      EXPECT_TRUE(at::equal(after.tensors[i].tensor, before.tensors[i].tensor)) << before.tensors[i].name;
    barrier(context.world());
  });
}

}  // namespace
}  // namespace rondo::testing::optimizer_state_dict_test
