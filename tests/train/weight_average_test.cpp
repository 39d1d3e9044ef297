// Tests of the average of weights: under every strategy, in checkpoints, in later fits, of every dtype.

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/weight_average.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"
#include "tests/train/trained_weights.h"

namespace rondo::weight_average_test {
namespace {

using testing::adamw;
using testing::best_at;
using testing::Digits;
using testing::digits;
using testing::equal;
using testing::Recorder;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;
using testing::values_of;

TEST(WeightAverage, EqualsTheAverageUnderEveryStrategy) {
  std::vector<double> losses;
  for (const auto& [strategy_name, ranks] : std::vector<std::pair<std::string, int>>{
           {"one_device", 1}, {"ddp", 2}, {"zero1", 2}, {"zero3", 2}, {"zero3", 3}}) {
    const TemporaryDirectory directory;
    run_ranks(ranks, "native", [&, strategy_name = strategy_name, ranks = ranks](Context& context) {
      auto strategy = all_strategies().make(strategy_name, context);
      // Computes the average explicitly from the weights after each step.
      struct ByHand final : Callback {
        std::string name() const override { return "by_hand"; }
        void on_train_begin(Trainer& trainer, const FitOutline&) override { average = values_of(trainer); }
        void on_step_end(Trainer& trainer, const StepRecord&) override {
          const auto now = values_of(trainer);
          for (std::size_t i = 0; i < now.size(); ++i) average[i] = 0.75 * average[i] + 0.25 * now[i];
        }
        std::vector<at::Tensor> average;
      };
      auto by_hand = std::make_shared<ByHand>();
      const auto options = [&](std::int64_t steps, std::vector<std::shared_ptr<Callback>> callbacks) {
        callbacks.push_back(std::make_shared<WeightAverage>(
            WeightAverage::Options{.decay = 0.75, .directory = directory / "average"}));
        callbacks.push_back(std::make_shared<ModelCheckpoint>(
            ModelCheckpoint::Options{.directory = directory / "checkpoints", .every_steps = 5}));
        return FitOptions{
            .steps = steps, .batch_size = 12 / ranks, .validation = digits(20, 2), .callbacks = callbacks};
      };
      Trainer straight(*strategy, small_model(), adamw(), cross_entropy);
      const FitResult result = straight.fit(digits(48), options(10, {by_hand}));
      const auto own = values_of(straight);
      for (std::size_t i = 0; i < own.size(); ++i)
        EXPECT_TRUE(torch::allclose(own[i], by_hand->average[i], 1e-5, 1e-6)) << strategy_name << ranks;
      // The last validation used the average.
      EXPECT_EQ(straight.evaluate(*digits(20, 2)).at("loss"), result.validation.at("loss"));
      if (context.rank() == 0) losses.push_back(result.validation.at("loss"));

      Trainer resumed(*strategy, small_model(), adamw(), cross_entropy);
      resumed.restore(directory / "checkpoints" / checkpoint_name(5));
      resumed.fit(digits(48), options(10, {}));
      EXPECT_TRUE(equal(values_of(resumed), own)) << strategy_name << ranks;
    });
  }
  for (const double loss : losses) EXPECT_NEAR(loss, losses[0], 1e-5);
  EXPECT_THROW(WeightAverage({.decay = 1.0}), UsageError);
}

// A checkpoint of the best validation has the validated weights. The average of every checkpoint of the
// training stays as long as that checkpoint.
TEST(WeightAverage, IsInBestCheckpointsAndBesideOthers) {
  for (const char* strategy_name : {"ddp", "zero3"}) {
    const TemporaryDirectory directory;
    run_ranks(2, "native", [&](Context& context) {
      auto strategy = all_strategies().make(strategy_name, context);
      struct Keeper final : Callback {
        std::string name() const override { return "keeper"; }
        void on_validation_end(Trainer& trainer, const ValidationRecord& record) override {
          if (record.step == 3) seen = values_of(trainer);
        }
        std::vector<at::Tensor> seen;
      };
      const auto keeper = std::make_shared<Keeper>();
      const auto fit = [&](Trainer& trainer, WeightAverage::Options average, const char* checkpoints) {
        average.decay = 0.75;
        trainer.fit(digits(32),
                    {.steps = 12,
                     .batch_size = 8,
                     .validation = digits(8, 2),
                     .validate_every = 1,
                     .callbacks = {keeper, std::make_shared<WeightAverage>(average),
                                   std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
                                       .directory = directory / "best", .best_of = "told"}),
                                   std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
                                       .directory = directory / checkpoints, .every_steps = 4, .keep = 2})}});
      };
      const auto compile = [](Trainer& trainer) {
        trainer.compile(adamw(), cross_entropy, {loss_metric(), best_at(3)});
      };
      Trainer trainer(*strategy, small_model());
      compile(trainer);
      fit(trainer, {.directory = directory / "average", .keep = 1}, "checkpoints");
      const auto values = [&](const std::filesystem::path& checkpoint) {
        std::vector<at::Tensor> found;
        for (const Shard& shard : trainer.weights_of(checkpoint)) found.push_back(shard.local);
        return found;
      };
      EXPECT_TRUE(equal(values(directory / "best" / checkpoint_name(3)), keeper->seen)) << strategy_name;
      EXPECT_TRUE(equal(values(directory / "average" / checkpoint_name(12)), values_of(trainer)));
      EXPECT_FALSE(equal(values(directory / "checkpoints" / checkpoint_name(12)), values_of(trainer)));
      std::vector<std::int64_t> steps;
      for (const CheckpointEntry& entry : list_checkpoints(directory / "average"))
        steps.push_back(entry.step);
      EXPECT_EQ(steps, (std::vector<std::int64_t>{8, 12})) << strategy_name;

      // Another run that resumes there finds it.
      Trainer resumed(*strategy, small_model());
      compile(resumed);
      resumed.restore(directory / "checkpoints" / checkpoint_name(8));
      fit(resumed, {.directory = directory / "other", .resumed_directory = directory / "average"}, "others");
      EXPECT_TRUE(equal(values_of(resumed), values_of(trainer))) << strategy_name;
    });
  }
}

TEST(WeightAverage, ContinuesInALaterFitUnlessReplaced) {
  for (const char* strategy_name : {"ddp", "zero3"}) {
    run_ranks(2, "native", [&](Context& context) {
      auto strategy = all_strategies().make(strategy_name, context);
      // Returns the figures of the average at the end.
      const auto trained = [&](const std::vector<std::int64_t>& fits, bool puts) {
        Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
        const auto average =
            std::make_shared<WeightAverage>(WeightAverage::Options{.decay = 0.9, .keep_at_end = false});
        FitResult result;
        for (const std::int64_t steps : fits) {
          if (puts) trainer.put_weights(trainer.copy_weights());
          result = trainer.fit(
              digits(48),
              {.steps = steps, .batch_size = 6, .validation = digits(8, 2), .callbacks = {average}});
        }
        return result.validation;
      };
      const auto whole = trained({8}, false);
      EXPECT_EQ(trained({5, 8}, false), whole) << strategy_name;
      EXPECT_NE(trained({5, 8}, true), whole) << strategy_name;
    });
  }
}

// A step changes the average by less than bfloat16 can represent.
TEST(WeightAverage, OfLowPrecisionIsInFloat32) {
  run_ranks(1, "native", [&](Context& context) {
    struct ByHand final : Callback {
      std::string name() const override { return "by_hand"; }
      void on_train_begin(Trainer& trainer, const FitOutline&) override {
        for (const at::Tensor& value : values_of(trainer)) average.push_back(value.to(at::kDouble));
        first = average;
      }
      void on_step_end(Trainer& trainer, const StepRecord&) override {
        const auto now = values_of(trainer);
        for (std::size_t i = 0; i < now.size(); ++i)
          average[i] = 0.999 * average[i] + 0.001 * now[i].to(at::kDouble);
      }
      std::vector<at::Tensor> first, average;
    };
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), c10::kCPU, {.level = OptLevel::O3, .dtype = at::kBFloat16});
    trainer.compile(adamw(0.05));
    const auto by_hand = std::make_shared<ByHand>();
    trainer.fit(
        digits(48),
        {.steps = 40,
         .batch_size = 12,
         .callbacks = {by_hand, std::make_shared<WeightAverage>(WeightAverage::Options{.decay = 0.999})}});
    const auto own = values_of(trainer);
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i].scalar_type(), at::kBFloat16);
      // Half a unit in the last of its eight bits.
      EXPECT_TRUE(torch::allclose(own[i].to(at::kDouble), by_hand->average[i], 1.0 / 256, 1e-6));
      EXPECT_FALSE(torch::allclose(by_hand->first[i], by_hand->average[i], 1.0 / 256, 1e-6));
    }
  });
}

TEST(WeightAverage, ShowsTheBuffersOfTheLastStep) {
  run_ranks(1, "native", [&](Context& context) {
    struct Keeper final : Callback {
      std::string name() const override { return "keeper"; }
      static at::Tensor mean_of(Trainer& trainer) {
        return trainer.model().module->named_buffers()["1.running_mean"].clone();
      }
      void on_step_end(Trainer& trainer, const StepRecord&) override { trained.push_back(mean_of(trainer)); }
      void on_validation_end(Trainer& trainer, const ValidationRecord&) override {
        shown.push_back(mean_of(trainer));
      }
      std::vector<at::Tensor> trained, shown;
    };
    auto strategy = strategy_for(context);
    const auto module = std::make_shared<torch::nn::SequentialImpl>(
        torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16), torch::nn::Linear(16, 8));
    Trainer trainer(*strategy, as_model(module), adamw(), cross_entropy);
    const auto keeper = std::make_shared<Keeper>();
    trainer.fit(
        digits(48),
        {.steps = 5,
         .batch_size = 12,
         .validation = digits(8, 2),
         .validate_every = 1,
         .callbacks = {keeper, std::make_shared<WeightAverage>(WeightAverage::Options{.every_steps = 4})}});
    EXPECT_EQ(keeper->shown.size(), 5U);
    EXPECT_TRUE(equal(keeper->shown, keeper->trained));
  });
}

// Ranks that train alone between averages show the average in between, then continue from their own weights
// and the outer optimizer's state. This also holds after a checkpoint at any moment.
TEST(WeightAverage, LeavesReplicasThatTrainAloneAsTheyAre) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    const auto trained = [&](std::int64_t steps, const std::filesystem::path& from,
                             std::vector<std::shared_ptr<Callback>> callbacks) {
      auto strategy =
          all_strategies().make("local_sgd", context, LocalSgdOptions{.sync_period = 4, .outer = "diloco"});
      Trainer trainer(
          *strategy, small_model(),
          [](torch::nn::Module& module) {
            return make_optimizer({.name = "sgd", .learning_rate = 0.1}, module);
          },
          cross_entropy);
      if (!from.empty()) trainer.restore(from);
      trainer.fit(digits(96), {.steps = steps,
                               .batch_size = 4,
                               .validation = digits(20, 2),
                               .validate_every = 3,
                               .callbacks = std::move(callbacks)});
      return values_of(trainer);
    };
    const auto average = [&](const char* name, bool keep_at_end) {
      return std::make_shared<WeightAverage>(WeightAverage::Options{
          .decay = 0.75, .keep_at_end = keep_at_end, .directory = directory / name / "average"});
    };
    const auto checkpoints = [&](const char* name) {
      return std::make_shared<ModelCheckpoint>(
          ModelCheckpoint::Options{.directory = directory / name, .every_steps = 5});
    };
    EXPECT_TRUE(equal(trained(14, {}, {average("plain", false), checkpoints("plain")}), trained(14, {}, {})));
    const auto averaged = trained(14, {}, {average("whole", true), checkpoints("whole")});
    // Checkpoints of a continuing training, and of one that ended, with the average.
    trained(7, {}, {average("short", true), checkpoints("short")});
    for (const std::int64_t step : {5, 7}) {
      const std::filesystem::path from = directory / "short" / checkpoint_name(step);
      EXPECT_TRUE(equal(trained(14, from, {average("short", true)}), averaged)) << step;
    }
  });
}

}  // namespace
}  // namespace rondo::weight_average_test
