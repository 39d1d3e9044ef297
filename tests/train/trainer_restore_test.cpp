// Tests of a Trainer that resumes from a checkpoint.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "rondo/base/error.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::trainer_restore_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::Recorder;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;

TEST(Trainer, ResumesMidEpochBitForBit) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto data = std::make_shared<Digits>(50);
    const auto options = [&](std::int64_t steps, std::vector<std::shared_ptr<Callback>> callbacks) {
      return FitOptions{.steps = steps, .batch_size = 8, .callbacks = std::move(callbacks)};
    };
    // 7 steps in an epoch; dropout draws from the default generator.
    auto uninterrupted = std::make_shared<Recorder>();
    Trainer straight(*strategy, small_model(0.5), adamw(), cross_entropy);
    torch::manual_seed(3);
    straight.fit(data, options(20, {uninterrupted}));

    auto recorder = std::make_shared<Recorder>();
    Trainer first(*strategy, small_model(0.5), adamw(), cross_entropy);
    torch::manual_seed(3);
    first.fit(data, options(10, {recorder, std::make_shared<ModelCheckpoint>(
                                               ModelCheckpoint::Options{.directory = directory.path()})}));
    torch::manual_seed(99);
    Trainer second(*strategy, small_model(0.5), adamw(), cross_entropy);
    second.restore(directory.path());
    EXPECT_EQ(second.position().step, 10);
    EXPECT_EQ(second.position().epoch, 1);
    EXPECT_EQ(second.position().batch, 3);
    second.fit(data, options(20, {recorder}));
    EXPECT_EQ(recorder->losses(), uninterrupted->losses());
  });
}

TEST(Trainer, OwnOptimizerOptionsApplyAfterARestore) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto data = std::make_shared<Digits>(50);
    const auto adam = [](double decay) {
      return OptimizerOptions{.name = "adamw", .learning_rate = 1e-2, .weight_decay = decay};
    };
    const auto decay_of = [](Trainer& trainer) {
      const auto& group = trainer.optimizer().param_groups().front();
      return static_cast<const torch::optim::AdamWOptions&>(group.options()).weight_decay();
    };
    Trainer first(*strategy, small_model());
    first.compile(adam(0.25));
    first.fit(data, {.steps = 3, .batch_size = 8});
    first.save(directory.path(), 1);

    Trainer second(*strategy, small_model());
    second.compile(adam(0.5));
    second.restore(directory.path());
    EXPECT_EQ(decay_of(second), 0.5);
    EXPECT_FALSE(second.optimizer().state().empty());
    second.fit(data, {.steps = 5, .batch_size = 8});
    EXPECT_EQ(decay_of(second), 0.5);

    // An optimizer from a custom factory uses the saved options, as in PyTorch.
    Trainer third(*strategy, small_model());
    third.compile([](torch::nn::Module& module) {
      return std::make_unique<torch::optim::AdamW>(module.parameters(), torch::optim::AdamWOptions(1e-2));
    });
    third.restore(directory.path());
    EXPECT_EQ(decay_of(third), 0.25);
  });
}

// world_resume_test covers batches that do not divide the finished samples.
TEST(Trainer, ResumesWithAnotherBatchSize) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto data = std::make_shared<Digits>(64);
    Trainer first(*strategy, small_model(), adamw(), cross_entropy);
    first.fit(data, {.steps = 6, .batch_size = 4});
    first.save(directory.path(), 1);

    const auto resumed = [&](const FitOptions& options) {
      Trainer second(*strategy, small_model(), adamw(), cross_entropy);
      second.restore(directory.path());
      second.fit(data, options);
      return second.position();
    };
    EXPECT_EQ(resumed({.steps = 7, .batch_size = 8}).batch,
              4);  // 24 samples are 3 batches of 8, and one more
    EXPECT_EQ(resumed({.steps = 7, .batch_size = 5}).step, 7);
    EXPECT_THROW(resumed({.steps = 7, .batch_size = 4, .seed = 1}), UsageError);
  });
}

}  // namespace
}  // namespace rondo::trainer_restore_test
