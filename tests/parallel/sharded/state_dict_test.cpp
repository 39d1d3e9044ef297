#include "rondo/strategy/state_dict.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/parallel/sharded/layers.h"
#include "tests/parallel/sharded/state_copies.h"

namespace rondo::testing::state_dict_test {
namespace {

TEST(StateDict, FullStateEqualsOneProcess) {
  const std::vector<at::Tensor> expected = train_alone({.steps = 2});
  const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    Layers model;
    for (const auto& parameter : model->named_parameters()) result.push_back(parameter.key());
    return result;
  }();
  for (const std::string backend : {"native", "gloo"}) {
    for (const std::string strategy : {"ddp", "zero1", "zero3", "random"}) {
      run_ranks(2, backend, [&](Context& context) {
        RankTraining training(context, strategy, state_options());
        training.step(0);
        training.step(1);
        for (const ModelTensor& tensor : full_state_dict(*training.prepared)) {
          const auto place = std::find(names.begin(), names.end(), tensor.name);
          ASSERT_NE(place, names.end()) << tensor.name;
          const at::Tensor& other = expected[static_cast<std::size_t>(place - names.begin())];
          EXPECT_LT(largest_difference(tensor.tensor, other), kTolerance) << strategy << " " << tensor.name;
        }
        barrier(context.world());
      });
    }
  }
}

TEST(StateDict, LoadedUnderAnotherStrategyTrainingGoesOn) {
  for (const std::string backend : {"native", "gloo"}) {
    run_ranks(2, backend, [](Context& context) {
      RankTraining first(context, "zero3", state_options());
      first.step(0);
      const auto saved = copies_of(full_state_dict(*first.prepared));
      barrier(context.world());
      for (const std::string strategy : {"zero1", "random", "ddp"}) {
        RankTraining second(context, strategy, state_options());
        load_full_state_dict(*second.prepared, saved);
        const auto loaded = copies_of(full_state_dict(*second.prepared));
        ASSERT_EQ(loaded.size(), saved.size());
        for (std::size_t i = 0; i < saved.size(); ++i) {
          EXPECT_TRUE(at::equal(loaded[i].tensor, saved[i].tensor)) << strategy << " " << saved[i].name;
        }
        barrier(context.world());
        second.step(1);  // uses the loaded values, so the computing model has them too
        second.prepared->unshard();
        barrier(context.world());
      }
    });
  }
}

TEST(StateDict, ShardsTileTheParametersAndComeBack) {
  run_ranks(3, "gloo", [](Context& context) {
    const auto strategy = all_strategies().make("zero3", context, state_options());
    Layers model;
    const auto prepared = strategy->prepare(model.ptr());
    const auto full = copies_of(full_state_dict(*prepared));
    std::vector<Shard> shards = sharded_state_dict(*prepared);
    ASSERT_EQ(shards.size(), full.size());
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const Shard& shard = shards[i];
      EXPECT_EQ(shard.global_sizes, full[i].tensor.sizes().vec());
      EXPECT_TRUE(at::equal(cut(full[i].tensor, shard), shard.local)) << shard.name;
      const auto all = all_gather(at::tensor(shard.local.numel()), context.world());
      std::int64_t elements = 0;
      for (const at::Tensor& one : all) elements += one.item<std::int64_t>();
      EXPECT_EQ(elements, full[i].tensor.numel()) << shard.name;
    }
    for (Shard& shard : shards) shard.local = shard.local * 3;
    load_sharded_state_dict(*prepared, shards);
    const auto changed = full_state_dict(*prepared);
    for (std::size_t i = 0; i < full.size(); ++i) {
      EXPECT_TRUE(at::equal(changed[i].tensor, full[i].tensor * 3)) << full[i].name;
    }
    barrier(context.world());
  });
}

TEST(StateDict, MismatchIsNamedAndChangesNothing) {
  run_ranks(2, "native", [](Context& context) {
    RankTraining training(context, "zero2", state_options());
    auto wrong = copies_of(full_state_dict(*training.prepared));
    const at::Tensor before = wrong.front().tensor.clone();
    for (ModelTensor& tensor : wrong) tensor.tensor.zero_();
    wrong[1].name = "output.wait";
    wrong[2].tensor = at::zeros({5});
    const std::string message = message_of([&] { load_full_state_dict(*training.prepared, wrong); });
    EXPECT_NE(message.find("the model has no 'output.wait'"), std::string::npos) << message;
    EXPECT_NE(message.find("is missing"), std::string::npos) << message;
    EXPECT_NE(message.find(wrong[2].name + "' is [5]"), std::string::npos) << message;
    auto shards = sharded_state_dict(*training.prepared);
    shards[0].within = FlatRange{shards[0].within->begin + 1, shards[0].within->end + 1};
    EXPECT_NE(message_of([&] { load_sharded_state_dict(*training.prepared, shards); }).find(shards[0].name),
              std::string::npos);
    EXPECT_TRUE(at::equal(full_state_dict(*training.prepared).front().tensor, before));
    barrier(context.world());
  });
}

// After forward the parameters stay on two neighbours of four, which gather them for backward between
// themselves.
TEST(Reshard, AmongFewerRanksTrainsAsOneProcess) {
  const std::vector<at::Tensor> expected = train_alone({.steps = 4});
  for (const int neighbours : {0, 1, 2, 4}) {
    run_ranks(4, "gloo", [&](Context& context) {
      ShardedOptions resharded = state_options();
      resharded.reshard_ranks = neighbours;
      const auto result = train_on_ranks(context, "zero3", resharded, {.steps = 4});
      EXPECT_LT(largest_difference(result, expected), kTolerance) << neighbours;
    });
  }
}

TEST(Reshard, BackwardGathersAmongTheNeighbours) {
  std::map<int, std::vector<std::uint64_t>> bytes;  // size of each all-gather of a step, by reshard_ranks
  for (const int neighbours : {0, 1, 2}) {
    run_ranks(4, "gloo", [&](Context& context) {
      ShardedOptions resharded;
      resharded.find_unused_parameters = true;
      resharded.segment_bytes = Bytes{0};
      resharded.prefetch = 0;
      resharded.reshard_ranks = neighbours;
      const auto strategy = all_strategies().make("zero3", context, resharded);
      Layers model;
      const auto prepared = strategy->prepare(model.ptr());
      const auto optimizer = make_adamw(prepared->module());
      prepared->begin_step({.samples = 3, .gradients_are_read = true});
      const Batch batch = rows(joint_batch(12, 1), context.rank() * 3, 3);
      mean_loss(model(batch.input), batch).backward();
      prepared->finish_backward();
      prepared->step(*optimizer);
      if (context.rank() == 0) {
        for (const TraceSpan& span : prepared->communication_spans()) {
          if (span.name == "all_gather") bytes[neighbours].push_back(*span.bytes);
        }
      }
      barrier(context.world());
    });
  }
  // 1: gathered for forward only. 2 of 4: each backward gather has two shards per rank and runs twice.
  EXPECT_LT(bytes[1].size(), bytes[0].size());
  EXPECT_GT(bytes[2].size(), bytes[0].size());
  const auto sum = [](const std::vector<std::uint64_t>& values) {
    return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
  };
  EXPECT_EQ(sum(bytes[2]), sum(bytes[0]));
  EXPECT_LT(*std::min_element(bytes[2].begin(), bytes[2].end()),
            *std::min_element(bytes[0].begin(), bytes[0].end()));
}

TEST(Reshard, IndivisibleGroupIsAnError) {
  run_ranks(4, "gloo", [](Context& context) {
    ShardedOptions resharded;
    resharded.reshard_ranks = 3;
    const auto strategy = all_strategies().make("zero3", context, resharded);
    Layers model;
    EXPECT_NE(message_of([&] {
                strategy->prepare(model.ptr());
              }).find("reshard_after_forward 3 does not divide the 4"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace rondo::testing::state_dict_test
