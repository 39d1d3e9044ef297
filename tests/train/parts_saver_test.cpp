#include "rondo/train/parts_saver.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/train/agreement.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/parallel/strategy_told.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"
#include "tests/train/equality_models.h"

// Checkpoints to which every rank writes its part.
namespace rondo::parts_saver_test {
namespace {

namespace fs = std::filesystem;
using testing::make_subject;
using testing::run_ranks;

// Returns every parameter and buffer, full, the same on all ranks.
NamedTensors weights_of(Trainer& trainer, const testing::Subject& subject) {
  trainer.evaluate(*subject.data);  // gathers the parameters
  NamedTensors result;
  for (const NamedTensor& t : named_tensors(*trainer.model().module))
    result.push_back({t.name, t.tensor.detach().clone()});
  return result;
}

void expect_close(const NamedTensors& got, const NamedTensors& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i].tensor, wanted[i].tensor, 1e-9, 1e-10))
        << what << ", " << got[i].name << ": " << (got[i].tensor - wanted[i].tensor).abs().max();
  }
}

struct Layout {
  std::string strategy;
  int ranks = 1;
};

// Trains 2 steps in one layout, saves, and loads in another layout.
NamedTensors through(const Layout& first, const Layout& second, const SaveOptions& options,
                     const std::string& model, const fs::path& root) {
  NamedTensors result;
  const auto on_ranks = [&](const Layout& layout,
                            const std::function<void(Trainer&, const testing::Subject&)>& body) {
    run_ranks(layout.ranks, "native", [&](Context& context) {
      const testing::Subject subject = make_subject(model);
      ShardedOptions sharded;
      sharded.find_unused_parameters = model == "sharing";
      const auto strategy = testing::make_strategy(layout.strategy, context, sharded);
      Trainer trainer(*strategy, subject.model);
      trainer.compile(testing::adamw());
      body(trainer, subject);
      barrier(context.world());
    });
  };
  on_ranks(first, [&](Trainer& trainer, const testing::Subject& subject) {
    trainer.fit(subject.data, {.steps = 2, .batch_size = 4});
    trainer.save(root, options);
    trainer.finish_save();
  });
  on_ranks(second, [&](Trainer& trainer, const testing::Subject& subject) {
    trainer.restore(root);
    const NamedTensors weights = weights_of(trainer, subject);
    if (trainer.strategy().context().rank() == 0) result = weights;
  });
  return result;
}

class EveryLayout : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, EveryLayout, ::testing::Values("gpt", "sharing"));

// A checkpoint in parts equals a whole one, for any layouts of saving and loading.
TEST_P(EveryLayout, PartsLoadUnderEveryOtherOne) {
  const std::vector<Layout> layouts{{"one_device", 1}, {"ddp", 2}, {"zero1", 3}, {"zero3", 4}};
  for (const Layout& first : layouts) {
    const TemporaryDirectory whole;
    const NamedTensors expected = through(first, {"one_device", 1}, {.keep = 1}, GetParam(), whole.path());
    for (const Layout& second : layouts) {
      const TemporaryDirectory parts;
      const std::string what = str(first.strategy, " to ", second.strategy);
      const bool in_background = second.ranks % 2 == 0;
      expect_close(through(first, second, {.keep = 1, .in_parts = true, .in_background = in_background},
                           GetParam(), parts.path()),
                   expected, what);
      const fs::path checkpoint = find_checkpoint(parts.path());
      EXPECT_TRUE(verify_checkpoint(checkpoint).empty()) << what;
      EXPECT_TRUE(fs::exists(checkpoint / part_name("model", first.ranks - 1, first.ranks))) << what;
      // Each tensor is stored once.
      const StoredTensors stored = stored_tensors(checkpoint, "model");
      for (const StoredTensor& tensor : stored) {
        std::int64_t elements = 0;
        for (const Shard& piece : tensor.pieces) elements += piece.elements();
        EXPECT_EQ(elements, tensor.full().numel()) << what << " " << tensor.name;
      }
    }
  }
}

// Replicas share the writing: neither of two ranks writes much more than half.
TEST(PartsSaver, RanksThatHoldTheSameShareTheWork) {
  const TemporaryDirectory directory;
  through({"ddp", 2}, {"one_device", 1}, {.in_parts = true}, "gpt", directory.path());
  const fs::path checkpoint = find_checkpoint(directory.path());
  const auto first = static_cast<double>(fs::file_size(checkpoint / part_name("optimizer", 0, 2)));
  const auto second = static_cast<double>(fs::file_size(checkpoint / part_name("optimizer", 1, 2)));
  EXPECT_NEAR(first / (first + second), 0.5, 0.1);
}

// Ranks exchange their lists of shards once, and again if one of them changes.
TEST(PartsSaver, WhatRanksWriteFollowsWhatTheyHold) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    PartsSaver saver;
    const auto save = [&](std::int64_t step, std::int64_t of_first, bool has_more) {
      const at::Tensor all = at::arange(10, at::kDouble) * step;
      const std::int64_t begin = context.rank() == 0 ? 0 : of_first;
      const std::int64_t end = context.rank() == 0 ? of_first : 10;
      ShardedState state;
      state.model.push_back(flat_shard("w", {10}, begin, all.narrow(0, begin, end - begin)));
      if (has_more && context.rank() == 1) state.model.push_back(full_shard("more", all));
      saver.save(context, {.root = directory.path(), .step = step, .keep = 9}, std::move(state), {}, {});
      for (const StoredTensor& tensor : stored_tensors(directory / checkpoint_name(step), "model"))
        EXPECT_TRUE(at::equal(tensor.full(), all)) << tensor.name << " of step " << step;
      const std::size_t tensors = stored_tensors(directory / checkpoint_name(step), "model").size();
      EXPECT_EQ(tensors, has_more ? 2U : 1U) << step;
      barrier(context.world());
    };
    save(1, 5, false);
    save(2, 5, false);
    save(3, 5, true);  // a change on one rank only
    save(4, 3, true);
  });
}

// Training changes the state during the write; the checkpoint has the saved state.
TEST(PartsSaver, BackgroundWriteHoldsTheStateOfItsStep) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    const testing::Subject subject = make_subject("gpt");
    const auto strategy = testing::make_strategy("zero3", context, {});
    Trainer trainer(*strategy, subject.model);
    trainer.compile(testing::adamw());
    trainer.fit(subject.data, {.steps = 2, .batch_size = 4});
    const NamedTensors saved = weights_of(trainer, subject);
    trainer.save(directory.path(), {.in_background = true});
    trainer.fit(subject.data, {.steps = 5, .batch_size = 4});
    const NamedTensors later = weights_of(trainer, subject);
    trainer.save(directory.path(), {.in_background = true});
    trainer.finish_save();
    barrier(context.world());
    for (const auto& [step, wanted] : {std::pair{2, &saved}, std::pair{5, &later}}) {
      trainer.restore(directory / checkpoint_name(step));
      expect_close(weights_of(trainer, subject), *wanted, str("step ", step));
      barrier(context.world());
    }
  });
}

TEST(PartsSaver, UnwritableDirectoryKeepsThePreviousCheckpoint) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    const testing::Subject subject = make_subject("gpt");
    const auto strategy = testing::make_strategy("zero3", context, {});
    Trainer trainer(*strategy, subject.model);
    trainer.compile(testing::adamw());
    trainer.fit(subject.data, {.steps = 1, .batch_size = 4});
    trainer.save(directory.path(), {.in_parts = true});
    trainer.fit(subject.data, {.steps = 2, .batch_size = 4});
    // A file has the name of the new checkpoint, which no rename replaces.
    if (context.rank() == 0) std::ofstream(directory / checkpoint_name(2)) << "in the way";
    barrier(context.world());
    EXPECT_THROW(trainer.save(directory.path(), {.in_parts = true}), AgreedError);
    trainer.save(directory.path(), {.in_background = true});
    EXPECT_THROW(trainer.finish_save(), AgreedError);
    trainer.fit(subject.data, {.steps = 3, .batch_size = 4});
    trainer.save(directory.path(), {.in_background = true});
    trainer.finish_save();
    barrier(context.world());
    EXPECT_EQ(newest_checkpoint(directory.path())->step, 3);
    EXPECT_EQ(list_checkpoints(directory.path()).front().step, 1);
    for (const auto& entry : fs::directory_iterator(directory.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
    barrier(context.world());
  });
}

// A missing part, or damage that the seal does not detect, is an error that names it.
TEST(StoredTensors, NamesPiecesThatDoNotCoverTheTensor) {
  const TemporaryDirectory directory;
  const at::Tensor full = torch::arange(12, at::kFloat).view({3, 4});
  const Shard left{.name = "w",
                   .global_sizes = {3, 4},
                   .offsets = {0, 0},
                   .sizes = {3, 2},
                   .local = full.narrow(1, 0, 2).contiguous()};
  const Shard right{.name = "w",
                    .global_sizes = {3, 4},
                    .offsets = {0, 2},
                    .sizes = {3, 2},
                    .local = full.narrow(1, 2, 2).contiguous()};
  const auto save = [&](std::int64_t step, const std::vector<std::vector<Shard>>& parts, int count) {
    CheckpointWriter writer(directory.path(), step);
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (FileRecord& file :
           write_part(writer.directory(), {.model = parts[i], .number = static_cast<int>(i), .count = count}))
        writer.add(std::move(file));
    return writer.commit(10);
  };
  const auto error_of = [](const fs::path& checkpoint) {
    try {
      stored_tensors(checkpoint, "model");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const StoredTensors good = stored_tensors(save(1, {{left}, {right}}, 2), "model");
  ASSERT_EQ(good.size(), 1U);
  EXPECT_TRUE(at::equal(good.front().full(), full));
  EXPECT_TRUE(at::equal(good.front().read(flat_shard("w", {3, 4}, 1, torch::empty({6}))).flatten(),
                        full.flatten().narrow(0, 1, 6)));
  testing::expect_facts(error_of(save(2, {{left}, {}}, 2)), {"'w'", "6", "12", "[0, 2]"});
  testing::expect_facts(error_of(save(3, {{left}, {right}}, 3)), {"model-00003-of-00003"});
  Shard other = right;
  other.global_sizes = {3, 5};
  testing::expect_facts(error_of(save(4, {{left}, {other}}, 2)), {"'w'", "[3, 4]", "[3, 5]"});
}

}  // namespace
}  // namespace rondo::parts_saver_test
