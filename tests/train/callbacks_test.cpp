// Tests of each callback, and of the effect of one that throws on the others.

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/backup_and_restore.h"
#include "rondo/train/callbacks/early_stopping.h"
#include "rondo/train/callbacks/gradient_norm.h"
#include "rondo/train/callbacks/learning_rate_scheduler.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/preemption.h"
#include "rondo/train/callbacks/reduce_on_plateau.h"
#include "rondo/train/callbacks/save_or_warn.h"
#include "rondo/train/callbacks/side_output.h"
#include "rondo/train/callbacks/terminate_on_nan.h"
#include "rondo/train/callbacks/weight_average.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"
#include "tests/train/trained_weights.h"

namespace rondo::callbacks_test {
namespace {

using testing::adamw;
using testing::best_at;
using testing::digits;
using testing::Digits;
using testing::equal;
using testing::Recorder;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;
using testing::values_of;

// A callback that records its calls.
class Diary final : public Callback {
 public:
  std::string name() const override { return "diary"; }
  void before_fit(Trainer&) override { add("before_fit"); }
  void on_train_begin(Trainer&, const FitOutline&) override { add("train_begin"); }
  void on_epoch_begin(Trainer&, std::int64_t epoch) override { add("epoch_begin", epoch); }
  void on_step_begin(Trainer&, std::int64_t step) override { add("step_begin", step); }
  void on_step_end(Trainer&, const StepRecord& record) override { add("step_end", record.step); }
  void on_validation_begin(Trainer&) override { add("validation_begin"); }
  void on_validation_end(Trainer&, const ValidationRecord& record) override {
    add("validation_end", record.step);
  }
  void on_epoch_end(Trainer&, const EpochRecord& record) override { add("epoch_end", record.epoch); }
  void on_step_complete(Trainer&, const StepRecord& record) override { add("step_complete", record.step); }
  void before_save(Trainer&) override { add("before_save"); }
  void after_save(Trainer&, const std::filesystem::path&) override { add("after_save"); }
  void on_train_end(Trainer&, const FitResult&) override { add("train_end"); }
  void on_exception(Trainer&, const std::exception& error) noexcept override {
    add(str("exception ", error.what()));
  }
  std::vector<std::string> lines;

 private:
  void add(const std::string& what) { lines.push_back(what); }
  void add(const std::string& what, std::int64_t number) { lines.push_back(str(what, " ", number)); }
};

TEST(Callbacks, AreToldBeforeAndAfterEverything) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    auto diary = std::make_shared<Diary>();
    trainer.fit(digits(16), {.epochs = 1,
                             .batch_size = 8,
                             .validation = digits(8, 2),
                             .callbacks = {diary, std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
                                                      .directory = directory.path()})}});
    EXPECT_EQ(diary->lines,
              (std::vector<std::string>{"before_fit", "train_begin", "epoch_begin 0", "step_begin 0",
                                        "step_end 1", "step_complete 1", "step_begin 1", "step_end 2",
                                        "validation_begin", "validation_end 2", "epoch_end 0",
                                        "step_complete 2", "before_save", "after_save", "train_end"}));
  });
}

// A callback that throws on one rank at a given moment.
class Failing final : public Callback {
 public:
  Failing(std::string moment, int rank) : moment_(std::move(moment)), rank_(rank) {}
  std::string name() const override { return "failing"; }
  void on_train_begin(Trainer& t, const FitOutline&) override { fail("train_begin", t); }
  void on_epoch_begin(Trainer& t, std::int64_t) override { fail("epoch_begin", t); }
  void on_step_begin(Trainer& t, std::int64_t step) override {
    if (step == 2) fail("step_begin", t);
  }
  void on_step_end(Trainer& t, const StepRecord& record) override {
    if (record.step == 3) fail("step_end", t);
    if (record.step == 8) fail("last_step_end", t);
  }
  void on_validation_begin(Trainer& t) override { fail("validation_begin", t); }
  void on_validation_end(Trainer& t, const ValidationRecord&) override { fail("validation_end", t); }
  void on_epoch_end(Trainer& t, const EpochRecord&) override { fail("epoch_end", t); }
  void on_train_end(Trainer& t, const FitResult&) override { fail("train_end", t); }

 private:
  void fail(const char* moment, Trainer& trainer) const {
    if (moment_ == moment && trainer.strategy().context().rank() == rank_)
      throw Error(str("no room at ", moment));
  }
  std::string moment_;
  int rank_;
};

TEST(Callbacks, ExceptionOnOneRankEndsAllRanks) {
  for (const char* strategy_name : {"ddp", "zero3"}) {
    for (const char* moment : {"train_begin", "epoch_begin", "step_begin", "step_end", "last_step_end",
                               "validation_begin", "validation_end", "epoch_end", "train_end"}) {
      std::atomic<int> told{0};
      std::atomic<int> reporters{0};
      run_ranks(3, "native", [&](Context& context) {
        auto strategy = all_strategies().make(strategy_name, context);
        Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
        auto diary = std::make_shared<Diary>();
        try {
          trainer.fit(digits(48), {.epochs = 2,
                                   .batch_size = 4,
                                   .validation = digits(9, 2),
                                   .callbacks = {std::make_shared<Failing>(moment, 1), diary}});
          ADD_FAILURE() << moment;
        } catch (const AgreedError& error) {
          const std::string expected = str("rank 1: failing: no room at ", moment);
          EXPECT_EQ(error.what(), expected);
          EXPECT_EQ(diary->lines.back(), "exception " + expected);
          EXPECT_EQ(error.exit_code(), ExitCode::failed);
          if (error.is_reporter()) ++reporters;
          ++told;
        }
      });
      EXPECT_EQ(told, 3) << strategy_name << " " << moment;
      EXPECT_EQ(reporters, 1);
    }
  }
}

TEST(Callbacks, ExceptionInOneProcessKeepsItsType) {
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    EXPECT_THROW(trainer.fit(digits(16), {.validation = digits(8),
                                          .callbacks = {std::make_shared<EarlyStopping>(
                                              EarlyStopping::Options{.metric = "bleu"})}}),
                 UsageError);
  });
}

// Callbacks that watch validations are useless in a training without them.
TEST(Callbacks, ThatWatchValidationsRefuseATrainingWithoutThem) {
  const std::vector<std::shared_ptr<Callback>> watchers = {
      std::make_shared<EarlyStopping>(EarlyStopping::Options{}),
      std::make_shared<ReduceOnPlateau>(ReduceOnPlateau::Options{}),
      std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{.directory = "none", .best_of = "loss"})};
  for (const int ranks : {1, 2}) {
    for (const std::shared_ptr<Callback>& watcher : watchers) {
      std::atomic<int> refused{0};
      run_ranks(ranks, "native", [&](Context& context) {
        auto strategy = strategy_for(context);
        Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
        auto recorder = std::make_shared<Recorder>();
        try {
          trainer.fit(digits(16), {.epochs = 1, .batch_size = 4, .callbacks = {watcher, recorder}});
          ADD_FAILURE() << watcher->name();
        } catch (const Error& error) {
          testing::expect_facts(error.what(), {"'loss'", "validation"});
          EXPECT_TRUE(recorder->steps_.empty());
          ++refused;
        }
      });
      EXPECT_EQ(refused, ranks);
    }
  }
}

// A callback that counts its steps; several have the same name.
class Counts final : public Callback {
 public:
  explicit Counts(int by) : by_(by) {}
  std::string name() const override { return "counts"; }
  void on_step_end(Trainer&, const StepRecord&) override { count += by_; }
  nlohmann::json state() const override { return count; }
  void restore(const nlohmann::json& state) override { count = state.get<int>(); }
  int count = 0;

 private:
  int by_;
};

TEST(Callbacks, OfOneNameHaveStatesOfTheirOwn) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto fit = [&](Trainer& trainer, std::int64_t steps) {
      std::vector<std::shared_ptr<Counts>> counts = {
          std::make_shared<Counts>(1), std::make_shared<Counts>(10), std::make_shared<Counts>(100)};
      trainer.fit(digits(64),
                  {.steps = steps, .batch_size = 4, .callbacks = {counts[0], counts[1], counts[2]}});
      return std::vector<int>{counts[0]->count, counts[1]->count, counts[2]->count};
    };
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    EXPECT_EQ(fit(trainer, 3), (std::vector<int>{3, 30, 300}));
    trainer.save(directory / "first", 1);
    Trainer resumed(*strategy, small_model(), adamw(), cross_entropy);
    resumed.restore(directory / "first");
    resumed.save(directory / "again", 1);  // states not yet given to a fit
    EXPECT_EQ(fit(resumed, 5), (std::vector<int>{5, 50, 500}));
    Trainer again(*strategy, small_model(), adamw(), cross_entropy);
    again.restore(directory / "again");
    EXPECT_EQ(fit(again, 4), (std::vector<int>{4, 40, 400}));
  });
}

TEST(Fit, SaysThatNothingIsLeftToTrain) {
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    const auto said = [&](const FitOptions& options) {
      ::testing::internal::CaptureStderr();
      trainer.fit(digits(16), options);
      return ::testing::internal::GetCapturedStderr();
    };
    EXPECT_EQ(said({.epochs = 2, .batch_size = 4}), "");
    testing::expect_facts(said({.epochs = 2, .batch_size = 4}), {"nothing", "step 8", "2 epochs", "more"});
    EXPECT_EQ(said({.epochs = 3, .batch_size = 4}), "");
    struct Stops final : Callback {
      std::string name() const override { return "stops"; }
      bool wants_to_stop() const override { return true; }
    };
    testing::expect_facts(said({.epochs = 9, .batch_size = 4, .callbacks = {std::make_shared<Stops>()}}),
                          {"nothing", "stops", "step 12"});
  });
}

TEST(EarlyStopping, EndsWithTheBestWeights) {
  for (const char* strategy_name : {"ddp", "zero1", "zero3"}) {
    const TemporaryDirectory directory;
    run_ranks(2, "native", [&](Context& context) {
      auto strategy = all_strategies().make(strategy_name, context);
      struct Keeper final : Callback {
        std::string name() const override { return "keeper"; }
        void on_validation_end(Trainer& trainer, const ValidationRecord&) override {
          seen.push_back(values_of(trainer));
        }
        std::vector<std::vector<at::Tensor>> seen;
      };
      auto keeper = std::make_shared<Keeper>();
      const auto fit = [&](Trainer& trainer) {
        const EarlyStopping::Options stopping{.metric = "told", .patience = 2, .restore_best = true};
        return trainer.fit(digits(32),
                           {.epochs = 9,
                            .batch_size = 8,
                            .validation = digits(8, 2),
                            .callbacks = {keeper, std::make_shared<EarlyStopping>(stopping),
                                          std::make_shared<ModelCheckpoint>(
                                              ModelCheckpoint::Options{.directory = directory.path()})}});
      };
      Trainer trainer(*strategy, small_model());
      trainer.compile(adamw(), cross_entropy, {loss_metric(), best_at(2)});
      const FitResult result = fit(trainer);
      EXPECT_EQ(result.end, FitEnd::early);
      EXPECT_EQ(result.ended_by, "early_stopping");
      EXPECT_EQ(result.validation.at("told"), 0);
      ASSERT_EQ(keeper->seen.size(), 4U) << strategy_name;
      EXPECT_TRUE(equal(values_of(trainer), keeper->seen[1])) << strategy_name;
      EXPECT_FALSE(equal(keeper->seen[3], keeper->seen[1]));

      // The last checkpoint has the best weights too, and a run that resumes from it has no steps left.
      Trainer resumed(*strategy, small_model());
      resumed.compile(adamw(), cross_entropy, {loss_metric(), best_at(2)});
      resumed.restore(directory.path());
      EXPECT_EQ(fit(resumed).validation, result.validation) << strategy_name;
      EXPECT_EQ(keeper->seen.size(), 4U);
      EXPECT_TRUE(equal(values_of(resumed), keeper->seen[1])) << strategy_name;
    });
  }
}

TEST(EarlyStopping, SaysThatNoValidationWasANumber) {
  ::testing::internal::CaptureStderr();
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model());
    const Metric nan{"told", 1, [](const MetricInput&, std::span<double> sums) { sums[0] = 0; },
                     [](std::span<const double>) { return std::nan(""); }};
    trainer.compile(adamw(), cross_entropy, {loss_metric(), nan});
    const EarlyStopping::Options stopping{.metric = "told", .patience = 2, .restore_best = true};
    trainer.fit(digits(16), {.epochs = 3,
                             .batch_size = 8,
                             .validation = digits(8, 2),
                             .callbacks = {std::make_shared<EarlyStopping>(stopping)}});
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("told was not a number"), std::string::npos) << said;
  EXPECT_EQ(said.find("resumed"), std::string::npos) << said;
}

TEST(ModelCheckpoint, KeepsTheBestAndEveryNthEpoch) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model());
    trainer.compile(adamw(), cross_entropy, {loss_metric(), best_at(4)});
    const auto checkpoint = [&](ModelCheckpoint::Options options, const char* name) {
      options.directory = directory.path() / name;
      return std::make_shared<ModelCheckpoint>(options);
    };
    trainer.fit(digits(16), {.epochs = 7,
                             .batch_size = 8,
                             .validation = digits(8, 2),
                             .callbacks = {checkpoint({.keep = 2, .best_of = "told"}, "best"),
                                           checkpoint({.every_epochs = 3, .keep = 9}, "third")}});
    if (context.rank() != 0) return;
    const auto steps = [&](const char* name) {
      std::vector<std::int64_t> steps;
      for (const CheckpointEntry& entry : list_checkpoints(directory.path() / name))
        steps.push_back(entry.step);
      return steps;
    };
    EXPECT_EQ(steps("best"), (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(steps("third"), (std::vector<std::int64_t>{3, 6, 7}));
  });
}

// A folder that cannot be created or written is an error before the first step, on all ranks.
TEST(ModelCheckpoint, RefusesUnwritableFolderAtTheStart) {
  const TemporaryDirectory directory;
  const std::filesystem::path below_a_file =
      std::filesystem::path(directory.write("file", "x")) / "checkpoints";
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = strategy_for(context);
      std::vector<std::shared_ptr<Callback>> writers = {
          std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{.directory = below_a_file}),
          std::make_shared<ModelCheckpoint>(
              ModelCheckpoint::Options{.directory = below_a_file, .in_parts = true}),
          std::make_shared<ModelCheckpoint>(
              ModelCheckpoint::Options{.directory = "/proc/self/fd", .every_steps = 1}),
          std::make_shared<BackupAndRestore>(BackupAndRestore::Options{.directory = below_a_file}),
          std::make_shared<WeightAverage>(WeightAverage::Options{.directory = below_a_file})};
      for (const auto& writer : writers) {
        Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
        const std::string message = testing::message_of<Error>(
            [&] { trainer.fit(digits(16), {.epochs = 1, .batch_size = 8, .callbacks = {writer}}); });
        testing::expect_facts(message, {"checkpoints cannot be written to", "choose another"});
        EXPECT_EQ(trainer.position().step, 0) << writer->name();
      }
    });
  }
  // The check leaves no files.
  run_ranks(2, "native", [&](Context& context) {
    require_writable(context, directory / "a/b/c");
    EXPECT_FALSE(context.rank() == 0 && std::filesystem::exists(directory / "a"));
  });
}

TEST(SideOutput, WarnsAndContinuesUntilItIsWritable) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.write("rows", "");
  SideOutput output(file);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(output.write([] {}));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(output.write([] { throw Error("cannot write rows: no room"); }));
  EXPECT_FALSE(output.write([] { throw Error("cannot write rows: no room"); }));
  const std::string said = ::testing::internal::GetCapturedStderr();
  testing::expect_facts(said, {"cannot write rows: no room", "training continues"});
  EXPECT_EQ(said.find("no room"), said.rfind("no room")) << "said once";
  EXPECT_TRUE(output.write([] {}));
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(output.write([&] { std::filesystem::remove(file); }));
  testing::expect_facts(::testing::internal::GetCapturedStderr(), {file.c_str(), "removed or renamed"});
  EXPECT_THROW(output.write([] { throw std::logic_error("a mistake"); }), std::logic_error);
}

TEST(ReduceOnPlateau, LowersTheRateAndRemembers) {
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    for (const bool scheduled : {false, true}) {
      Trainer trainer(*strategy, small_model());
      trainer.compile(adamw(0.01), cross_entropy, {loss_metric(), best_at(1)});
      auto recorder = std::make_shared<Recorder>();
      auto plateau = std::make_shared<ReduceOnPlateau>(
          ReduceOnPlateau::Options{.metric = "told", .patience = 2, .factor = 0.5, .smallest = 0.3});
      FitOptions options{
          .epochs = 8, .batch_size = 8, .validation = digits(8, 2), .callbacks = {recorder, plateau}};
      if (scheduled) options.schedule = [](std::int64_t step) { return 0.1 * static_cast<double>(step + 1); };
      trainer.fit(digits(8), options);
      const std::vector<double> factors{1, 1, 1, 0.5, 0.5, 0.3, 0.3, 0.3};
      for (std::size_t i = 0; i < factors.size(); ++i) {
        EXPECT_DOUBLE_EQ(recorder->steps_[i].learning_rate,
                         factors[i] * (scheduled ? 0.1 * static_cast<double>(i + 1) : 0.01));
      }
      ReduceOnPlateau resumed({.metric = "told", .patience = 2, .factor = 0.5});
      resumed.restore(plateau->state());
      EXPECT_DOUBLE_EQ(resumed.learning_rate_factor(), 0.3);
    }
    EXPECT_THROW(ReduceOnPlateau({.factor = 1.5}), UsageError);
  });
}

TEST(LearningRateScheduler, KeepsTheCurveOfTheRunThatBegan) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto rates = [&](std::int64_t steps, std::int64_t told_warmup, bool resumed) {
      Trainer trainer(*strategy, small_model(), adamw(0.01), cross_entropy);
      if (resumed) trainer.restore(directory.path());
      auto recorder = std::make_shared<Recorder>();
      trainer.fit(digits(80),
                  {.steps = steps,
                   .batch_size = 8,
                   .callbacks = {recorder, std::make_shared<LearningRateScheduler>(ScheduleOptions{
                                               .kind = "cosine", .warmup_steps = told_warmup})}});
      if (!resumed && steps == 4) trainer.save(directory.path(), 1);
      std::vector<double> rates;
      for (const StepRecord& step : recorder->steps_) rates.push_back(step.learning_rate);
      return rates;
    };
    const std::vector<double> first = rates(4, 2, false);
    EXPECT_DOUBLE_EQ(first[0], 0.005);
    EXPECT_DOUBLE_EQ(first[1], 0.01);
    EXPECT_DOUBLE_EQ(first[3], 0.005);  // middle of the decay
    // More steps and another warm-up: the curve has ended nevertheless.
    for (const double rate : rates(8, 6, true)) EXPECT_DOUBLE_EQ(rate, 0.0);
  });
}

TEST(GradientNorm, MeasuresWithoutScaling) {
  for (const char* strategy_name : {"ddp", "zero2"}) {
    run_ranks(2, "native", [&](Context& context) {
      auto strategy = all_strategies().make(strategy_name, context);
      const auto trained = [&](std::vector<std::shared_ptr<Callback>> callbacks, double clip) {
        Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
        trainer.fit(digits(32),
                    {.steps = 4, .batch_size = 4, .clip_norm = clip, .callbacks = std::move(callbacks)});
        return values_of(trainer);
      };
      auto recorder = std::make_shared<Recorder>();
      auto clipped = std::make_shared<Recorder>();
      const auto norm = std::make_shared<GradientNorm>(GradientNorm::Options{.every_steps = 2});
      EXPECT_TRUE(equal(trained({norm, recorder}, 0), trained({}, 0))) << strategy_name;
      trained({clipped}, 1e9);
      EXPECT_FALSE(recorder->steps_[0].gradient_norm.has_value());
      EXPECT_EQ(recorder->steps_[1].gradient_norm, clipped->steps_[1].gradient_norm);
      EXPECT_GE(norm->largest().value(), *recorder->steps_[3].gradient_norm);
    });
  }
}

TEST(TerminateOnNan, EndsTrainingOnAllRanks) {
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model());
    trainer.compile(adamw(1e38));
    const FitResult result = trainer.fit(
        digits(64), {.epochs = 20, .batch_size = 4, .callbacks = {std::make_shared<TerminateOnNan>()}});
    EXPECT_EQ(result.end, FitEnd::early);
    EXPECT_EQ(result.ended_by, "terminate_on_nan");
    EXPECT_FALSE(std::isfinite(*result.loss));
    EXPECT_LT(result.step, 160);
  });
}

TEST(BackupAndRestore, GoesOnWhereTheProcessDied) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto train = [&](std::filesystem::path backup, bool dies) {
      Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
      auto recorder = std::make_shared<Recorder>();
      std::vector<std::shared_ptr<Callback>> callbacks{
          recorder, std::make_shared<BackupAndRestore>(
                        BackupAndRestore::Options{.directory = backup, .every_steps = 2})};
      struct Dies final : Callback {
        std::string name() const override { return "dies"; }
        void on_step_end(Trainer&, const StepRecord& record) override {
          if (record.step == 5) throw Error("the process dies");
        }
      };
      if (dies) callbacks.push_back(std::make_shared<Dies>());
      try {
        trainer.fit(digits(32), {.epochs = 2, .batch_size = 4, .callbacks = callbacks});
        EXPECT_FALSE(dies);
      } catch (const AgreedError&) {
        EXPECT_TRUE(dies);
      }
      return recorder->losses();
    };
    const std::vector<double> whole = train(directory / "whole", false);
    EXPECT_FALSE(std::filesystem::exists(directory / "whole"));
    train(directory / "backup", true);
    std::vector<double> rest = train(directory / "backup", false);
    ASSERT_EQ(rest.size(), 4U);  // the backup is of step 4
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.end() - 4));
  });
}

TEST(Preemption, FileOrSignalEndsAllAfterAStep) {
  const TemporaryDirectory directory;
  for (const bool by_signal : {false, true}) {
    run_ranks(2, "native", [&](Context& context) {
      auto strategy = strategy_for(context);
      Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
      // Signal handlers belong to the process that the ranks' threads share: only rank 1 handles the signal.
      const auto preemption = std::make_shared<Preemption>(
          by_signal && context.rank() == 1
              ? Preemption::Options{.signals = {SIGUSR2}}
              : Preemption::Options{.notice_file = directory / (by_signal ? "none" : "notice")});
      struct Announces final : Callback {
        std::string name() const override { return "announces"; }
        void on_train_begin(Trainer& trainer, const FitOutline&) override {
          // The other rank resets the shared state, including an earlier notice.
          barrier(trainer.strategy().context().world());
          if (trainer.strategy().context().rank() != 1) return;
          if (by_signal) {
            std::raise(SIGUSR2);
          } else {
            std::ofstream(file) << "soon";
          }
        }
        bool by_signal = false;
        std::filesystem::path file;
      };
      auto announces = std::make_shared<Announces>();
      announces->by_signal = by_signal;
      announces->file = directory / "notice";
      const FitResult result =
          trainer.fit(digits(80), {.epochs = 5, .batch_size = 4, .callbacks = {preemption, announces}});
      EXPECT_EQ(result.end, FitEnd::preempted);
      EXPECT_EQ(result.step, 1);
    });
  }
}

}  // namespace
}  // namespace rondo::callbacks_test
