// Tests of Keras' training options: history, virtual epochs, initial epoch, manual steps, limited evaluation.

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include <numeric>

#include "rondo/base/error.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::fit_options_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::Recorder;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;

TEST(Fit, ReturnsTheHistoryOfItsEpochs) {
  run_ranks(2, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    auto recorder = std::make_shared<Recorder>();
    // 26 samples in global batches of 12: the last one of an epoch has 2, so a mean over steps is not the
    // loss.
    const FitResult result =
        trainer.fit(std::make_shared<Digits>(26), {.epochs = 3,
                                                   .batch_size = 6,
                                                   .validation = std::make_shared<Digits>(9, 2),
                                                   .callbacks = {recorder}});
    ASSERT_EQ(result.history.size(), 3U);
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
      const EpochRecord& record = result.history[epoch];
      EXPECT_EQ(record.epoch, static_cast<std::int64_t>(epoch));
      EXPECT_EQ(record.step, static_cast<std::int64_t>(3 * (epoch + 1)));
      EXPECT_EQ(record.samples, 26);
      double sum = 0;
      for (std::size_t step = 0; step < 3; ++step) {
        const StepRecord& own = recorder->steps_[3 * epoch + step];
        sum += own.loss * static_cast<double>(own.samples);
      }
      EXPECT_NEAR(record.loss, sum / 26, 1e-9);
      EXPECT_EQ(record.validation, recorder->validations_[epoch].values);
    }
    EXPECT_TRUE(trainer.fit(std::make_shared<Digits>(26), {.steps = 10, .batch_size = 6}).history.empty());
  });
}

TEST(Fit, EndsVirtualEpochsWhereverTheDataIs) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto data = std::make_shared<Digits>(40);  // 5 steps in a pass
    const auto train = [&](std::optional<std::int64_t> epochs, std::optional<std::int64_t> steps,
                           std::int64_t steps_per_epoch, bool resumed) {
      Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
      if (resumed) trainer.restore(directory.path());
      auto recorder = std::make_shared<Recorder>();
      trainer.fit(data, {.epochs = epochs,
                         .steps = steps,
                         .steps_per_epoch = steps_per_epoch,
                         .batch_size = 4,
                         .validation = std::make_shared<Digits>(8, 2),
                         .callbacks = {recorder}});
      if (steps && *steps == 7) trainer.save(directory.path(), 1);
      return recorder;
    };
    const auto plain = train({}, 12, 0, false);
    const auto whole = train(4, {}, 3, false);
    EXPECT_EQ(whole->losses(), plain->losses());  // the order of data is the same
    EXPECT_EQ(whole->outline_.total_steps, 12);
    EXPECT_EQ(whole->outline_.steps_per_epoch, 3);
    EXPECT_EQ(whole->epochs_, (std::vector<std::int64_t>{0, 1, 2, 3}));
    ASSERT_EQ(whole->validations_.size(), 4U);
    EXPECT_EQ(whole->validations_[1].step, 6);
    EXPECT_EQ(whole->validations_[1].epoch, 1);
    EXPECT_EQ(whole->steps_[6].epoch, 2);
    EXPECT_DOUBLE_EQ(whole->steps_[6].epochs_done, 7.0 / 3);

    const auto first = train({}, 7, 3, false);
    const auto rest = train(4, {}, 3, true);
    std::vector<double> joined = first->losses();
    for (const double loss : rest->losses()) joined.push_back(loss);
    EXPECT_EQ(joined, whole->losses());
    EXPECT_EQ(rest->epochs_, (std::vector<std::int64_t>{2, 3}));
  });
}

TEST(Fit, BeginsAtTheInitialEpoch) {
  run_ranks(2, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    const auto data = std::make_shared<Digits>(40);
    for (const std::int64_t steps_per_epoch : {0, 3}) {
      const std::int64_t per_epoch = steps_per_epoch > 0 ? steps_per_epoch : 5;
      // A rate of 0 keeps the weights, so the losses reveal the samples of a step.
      Trainer whole(*strategy, small_model(), adamw(0), cross_entropy);
      auto of_whole = std::make_shared<Recorder>();
      whole.fit(data,
                {.epochs = 4, .steps_per_epoch = steps_per_epoch, .batch_size = 4, .callbacks = {of_whole}});
      Trainer trainer(*strategy, small_model(), adamw(0), cross_entropy);
      auto recorder = std::make_shared<Recorder>();
      const FitResult result = trainer.fit(data, {.epochs = 4,
                                                  .steps_per_epoch = steps_per_epoch,
                                                  .initial_epoch = 2,
                                                  .batch_size = 4,
                                                  .callbacks = {recorder}});
      EXPECT_EQ(result.step, 4 * per_epoch);
      EXPECT_EQ(recorder->epochs_, (std::vector<std::int64_t>{2, 3}));
      const std::vector<double> all = of_whole->losses();
      EXPECT_EQ(recorder->losses(), std::vector<double>(all.begin() + 2 * per_epoch, all.end()));
      // A training that has begun continues from its position.
      EXPECT_EQ(
          trainer
              .fit(data,
                   {.epochs = 5, .steps_per_epoch = steps_per_epoch, .initial_epoch = 1, .batch_size = 4})
              .step,
          5 * per_epoch);
    }
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    EXPECT_THROW(trainer.fit(data, {.steps_per_epoch = -1}), Error);
    EXPECT_THROW(trainer.fit(data, {.initial_epoch = -1}), Error);
    EXPECT_THROW(trainer.fit(data, {.clip_norm = -1}), Error);
    EXPECT_THROW(trainer.fit(data, {.validate_every = -1}), Error);
  });
}

TEST(Fit, WithoutShardingRanksReadEverything) {
  const auto losses_of = [](int ranks, AutoShard sharding) {
    std::vector<double> losses;
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = strategy_for(context);
      Trainer trainer(*strategy, small_model(), adamw(0), cross_entropy);
      auto recorder = std::make_shared<Recorder>();
      const FitResult result =
          trainer.fit(std::make_shared<Digits>(40),
                      {.epochs = 1, .batch_size = 4, .input_sharding = sharding, .callbacks = {recorder}});
      const int readers = sharding == AutoShard::off ? 1 : ranks;
      EXPECT_EQ(result.step, 10 / readers);
      for (const StepRecord& step : recorder->steps_) EXPECT_EQ(step.samples, 4 * ranks);
      if (context.rank() == 0) losses = recorder->losses();
    });
    return losses;
  };
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  const std::vector<double> alone = losses_of(1, AutoShard::data), both = losses_of(2, AutoShard::off);
  // Each rank reads every sample once.
  EXPECT_NEAR(mean(both), mean(alone), 1e-6);
  EXPECT_NE(both, alone);
  EXPECT_NEAR(mean(losses_of(2, AutoShard::automatic)), mean(alone), 1e-6);
  EXPECT_THROW(losses_of(1, AutoShard::file), UsageError);
}

TEST(Fit, BeginsAtTheInitialStep) {
  run_ranks(2, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    const auto data = std::make_shared<Digits>(40);  // five steps in a pass
    Trainer whole(*strategy, small_model(), adamw(0), cross_entropy);
    auto of_whole = std::make_shared<Recorder>();
    whole.fit(data, {.steps = 14, .batch_size = 4, .callbacks = {of_whole}});
    Trainer trainer(*strategy, small_model(), adamw(0), cross_entropy);
    auto recorder = std::make_shared<Recorder>();
    trainer.fit(data, {.steps = 14, .initial_step = 7, .batch_size = 4, .callbacks = {recorder}});
    const std::vector<double> all = of_whole->losses();
    EXPECT_EQ(recorder->losses(), std::vector<double>(all.begin() + 7, all.end()));
    EXPECT_EQ(recorder->epochs_, std::vector<std::int64_t>{1}) << "epochs that have ended";
    EXPECT_THROW(trainer.fit(data, {.initial_step = -1}), Error);
  });
}

TEST(TrainOnBatch, IsAStepOfFit) {
  for (const char* name : {"ddp", "zero3"}) {
    run_ranks(2, "native", [&](Context& context) {
      auto strategy = all_strategies().make(name, context);
      const Digits data(24);
      const auto batch_of = [&](std::int64_t step) {
        std::vector<std::int64_t> own(4);
        for (std::int64_t i = 0; i < 4; ++i)
          own[static_cast<std::size_t>(i)] = 8 * step + 2 * i + context.rank();
        return data.get(own);
      };
      Trainer by_fit(*strategy, small_model(), adamw(), cross_entropy);
      auto recorder = std::make_shared<Recorder>();
      by_fit.fit(std::make_shared<Digits>(24),
                 {.epochs = 1, .batch_size = 4, .shuffle = false, .callbacks = {recorder}});
      Trainer by_hand(*strategy, small_model(), adamw(), cross_entropy);
      for (std::int64_t step = 0; step < 3; ++step) {
        const StepRecord record = by_hand.train_on_batch(batch_of(step));
        EXPECT_NEAR(record.loss, recorder->losses()[static_cast<std::size_t>(step)], 1e-6) << name;
        EXPECT_EQ(record.step, step + 1);
        EXPECT_EQ(record.samples, 8);
      }
      EXPECT_NEAR(by_hand.evaluate(data).at("loss"), by_fit.evaluate(data).at("loss"), 1e-6);
    });
  }
}

TEST(Predict, OfSomeBatchesIsTheHeadOfAll) {
  run_ranks(3, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    const Digits data(23);
    const at::Tensor all = trainer.predict(data, {.batch_size = 4});
    EXPECT_TRUE(trainer.predict(data, {.batch_size = 4, .batches = 4}).equal(all.slice(0, 0, 16)));
    EXPECT_TRUE(trainer.predict(data, {.batch_size = 4, .batches = 99}).equal(all));
  });
}

}  // namespace
}  // namespace rondo::fit_options_test
