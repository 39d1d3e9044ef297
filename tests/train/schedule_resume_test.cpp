// A learning-rate schedule across changes of ranks, batch size and accumulation: it continues from its
// position, and reaches its end with the last step.
#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/train/callbacks/learning_rate_scheduler.h"
#include "rondo/train/schedule_state.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::schedule_resume_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::Recorder;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;

constexpr double kRate = 0.1;

struct World {
  int ranks = 1;
  std::int64_t batch = 4;
  std::int64_t accumulate = 1;
};

struct Plan {
  ScheduleOptions schedule = {};
  std::int64_t samples = 60;
  std::int64_t epochs = 3;
  bool by_callback = false;  // LearningRateScheduler instead of FitOptions::named_schedule
};

std::string describe(const World& world) {
  return std::to_string(world.ranks) + " ranks, batch " + std::to_string(world.batch) + ", accumulated " +
         std::to_string(world.accumulate) + "; ";
}

struct Rates {
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;  // last step of the whole training
  std::vector<double> of_steps;
};

// Trains in `world` from the newest checkpoint in `directory`, if there is one, up to step `until` (0: the
// end), and saves there.
Rates train(const Plan& plan, const World& world, const std::filesystem::path& directory,
            std::int64_t until) {
  Rates rates;
  run_ranks(world.ranks, "native", [&](Context& context) {
    const auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(kRate), cross_entropy);
    if (!std::filesystem::is_empty(directory)) trainer.restore(directory);
    barrier(context.world());
    const auto recorder = std::make_shared<Recorder>();
    bool stops = false;
    struct Stop final : Callback {
      explicit Stop(std::int64_t step, bool& stops) : step_(step), stops_(stops) {}
      std::string name() const override { return "stop"; }
      void on_step_begin(Trainer&, std::int64_t step) override { stops_ = step + 1 == step_; }
      std::int64_t step_;
      bool& stops_;
    };
    FitOptions options{.epochs = plan.epochs,
                       .batch_size = world.batch,
                       .accumulate = world.accumulate,
                       .callbacks = {recorder, std::make_shared<Stop>(until, stops)},
                       .stop_requested = [&stops] { return stops; }};
    if (plan.by_callback) {
      options.callbacks.push_back(std::make_shared<LearningRateScheduler>(plan.schedule));
    } else {
      options.named_schedule = plan.schedule;
      options.named_schedule->learning_rate = kRate;
    }
    trainer.fit(std::make_shared<Digits>(plan.samples), options);
    trainer.save(directory, 1);
    if (context.rank() != 0) return;
    rates.first_step = recorder->outline_.first_step;
    rates.last_step = recorder->outline_.total_steps;
    for (const StepRecord& step : recorder->steps_) rates.of_steps.push_back(step.learning_rate);
  });
  return rates;
}

// Returns the rate of `schedule` at a position from 0, the highest rate, to 1, the lowest.
double rate_at(const ScheduleOptions& schedule, double position) {
  ScheduleOptions whole = schedule;
  whole.learning_rate = kRate;
  whole.warmup_steps = 0;
  whole.total_steps = 1;
  return scheduled_rate(whole, position);
}

void expect_continuous(const Plan& plan, const World& before, std::int64_t stop,
                       const std::vector<World>& after) {
  const TemporaryDirectory directory;
  const Rates first = train(plan, before, directory.path(), stop);
  ASSERT_EQ(first.of_steps.size(), static_cast<std::size_t>(stop));
  ScheduleOptions schedule = plan.schedule;
  // Position at which the first world's schedule continues.
  double position = static_cast<double>(stop - schedule.warmup_steps) /
                    static_cast<double>(first.last_step - schedule.warmup_steps);
  std::string what = schedule.kind + (plan.by_callback ? " by callback: " : ": ") + describe(before);
  for (std::size_t i = 0; i < after.size(); ++i) {
    what += describe(after[i]);
    const bool is_last = i + 1 == after.size();
    const Rates rest =
        train(plan, after[i], directory.path(), is_last ? 0 : stop + 2 * static_cast<std::int64_t>(i + 1));
    ASSERT_GE(rest.of_steps.size(), 2U) << what;
    const double each = (1 - position) / static_cast<double>(rest.last_step - rest.first_step);
    for (std::size_t step = 0; step < rest.of_steps.size(); ++step) {
      EXPECT_NEAR(rest.of_steps[step], rate_at(schedule, position + each * static_cast<double>(step)), 1e-9)
          << what << "step " << step << " of " << rest.last_step - rest.first_step;
    }
    position += each * static_cast<double>(rest.of_steps.size());
    if (is_last) {
      EXPECT_NEAR(position, 1, 1e-9) << what;
    }
  }
}

TEST(ScheduleResume, ContinuesAndReachesItsEnd) {
  const std::vector<std::vector<World>> ways = {
      {{1}, {3}},
      {{3}, {1}},
      {{1}, {.batch = 8}},
      {{1}, {.accumulate = 3}},
      {{2, 3, 2}, {1, 5, 1}},
      {{1}, {3}, {1}},
      {{2}, {2, 4}},
      {{.batch = 7}, {3, 2}, {2, 5}},
  };
  for (const bool by_callback : {false, true}) {
    for (const std::int64_t samples : {60, 61}) {
      for (const std::vector<World>& worlds : ways) {
        const Plan plan{.schedule = {.kind = samples == 60 ? "linear" : "cosine", .end_fraction = 0.1},
                        .samples = samples,
                        .by_callback = by_callback};
        expect_continuous(plan, worlds.front(), 4, {worlds.begin() + 1, worlds.end()});
      }
    }
  }
}

TEST(ScheduleResume, GoesOnInTheWarmUp) {
  for (const bool by_callback : {false, true}) {
    const Plan plan{.schedule = {.kind = "linear", .warmup_steps = 20}, .by_callback = by_callback};
    const TemporaryDirectory directory;
    train(plan, {1}, directory.path(), 10);
    // 20 samples of the epoch are left: two steps of three ranks. 10 steps follow; together they cover 35
    // positions.
    const Rates rest = train(plan, {3}, directory.path(), 0);
    ASSERT_EQ(rest.of_steps.size(), 12U);
    EXPECT_NEAR(rest.of_steps.front(), kRate * 11 / 20, 1e-9);
    for (std::size_t step = 1; step < rest.of_steps.size(); ++step) {
      const double position = 10 + 35.0 / 12 * static_cast<double>(step);
      const double expected = position < 20 ? std::min(1.0, (position + 1) / 20) : 1 - (position - 20) / 25;
      EXPECT_NEAR(rest.of_steps[step], kRate * expected, 1e-9) << step;
    }
  }
}

TEST(ScheduleResume, DropsOfStepsComeAtTheSameData) {
  const Plan plan{.schedule = {.kind = "step", .decay_every = 15}};
  const TemporaryDirectory directory;
  train(plan, {1}, directory.path(), 15);  // one epoch
  const Rates rest = train(plan, {3}, directory.path(), 0);
  ASSERT_EQ(rest.of_steps.size(), 10U);
  for (std::size_t step = 0; step < 10; ++step)
    EXPECT_NEAR(rest.of_steps[step], kRate * (step < 5 ? 0.1 : 0.01), 1e-12) << step;
}

TEST(ScheduleResume, IsBitEqualAfterMovingToOtherRanks) {
  // The step of the new world is not exact in binary: recomputed rates would differ in their last bits.
  const Plan plan{.schedule = {.kind = "cosine"}, .samples = 60};
  const TemporaryDirectory whole, interrupted;
  train(plan, {1}, whole.path(), 5);
  const Rates all = train(plan, {3}, whole.path(), 0);
  train(plan, {1}, interrupted.path(), 5);
  Rates parts = train(plan, {3}, interrupted.path(), 6);
  const Rates rest = train(plan, {3}, interrupted.path(), 0);
  parts.of_steps.insert(parts.of_steps.end(), rest.of_steps.begin(), rest.of_steps.end());
  EXPECT_EQ(parts.of_steps, all.of_steps);
}

TEST(ScheduleResume, DependsOnTheStepInTheSameWorld) {
  Plan plan{.schedule = {.kind = "linear"}};
  const TemporaryDirectory directory;
  train(plan, {2}, directory.path(), 9);
  plan.epochs = 5;  // a longer training, as if from the beginning
  const Rates rest = train(plan, {2}, directory.path(), 0);
  EXPECT_EQ(rest.first_step, 9);
  EXPECT_EQ(rest.last_step, 40);
  for (std::size_t step = 0; step < rest.of_steps.size(); ++step)
    EXPECT_DOUBLE_EQ(rest.of_steps[step], kRate * (1 - static_cast<double>(9 + step) / 40)) << step;
}

TEST(ScheduleResume, StepCountsDoNotDependOnRanks) {
  const TemporaryDirectory directory;
  const auto rates = [&](int ranks, std::int64_t steps, std::int64_t stop) {
    std::vector<double> rates;
    run_ranks(ranks, "native", [&](Context& context) {
      const auto strategy = strategy_for(context);
      Trainer trainer(*strategy, small_model(), adamw(kRate), cross_entropy);
      if (stop == 0) trainer.restore(directory.path());
      const auto recorder = std::make_shared<Recorder>();
      std::int64_t done = 0;
      FitOptions options{.steps = steps, .batch_size = 4, .callbacks = {recorder}};
      options.named_schedule = {.kind = "linear", .learning_rate = kRate};
      if (stop > 0) options.stop_requested = [&] { return ++done == stop; };
      trainer.fit(std::make_shared<Digits>(60), options);
      if (stop > 0) trainer.save(directory.path(), 1);
      if (context.rank() != 0) return;
      for (const StepRecord& step : recorder->steps_) rates.push_back(step.learning_rate);
    });
    return rates;
  };
  ASSERT_EQ(rates(1, 45, 30).size(), 30U);
  const std::vector<double> rest = rates(3, 45, 0);
  ASSERT_EQ(rest.size(), 15U);
  for (std::size_t step = 0; step < rest.size(); ++step)
    EXPECT_NEAR(rest[step], kRate * (1 - static_cast<double>(30 + step) / 45), 1e-12) << step;
}

TEST(ScheduleState, ComesBackAsItWasAndIsChecked) {
  const ScheduleState state{
      .position = {.step = 7, .done = 9.5, .per_step = 1.25, .length = 45},
      .length = {.epochs = 3, .steps_per_epoch = 2, .steps_per_pass = 15, .last_step = 40}};
  const nlohmann::json text = nlohmann::json::parse(to_json(state).dump());
  const ScheduleState read = parse_schedule_state(text, "state.json");
  EXPECT_EQ(to_json(read), to_json(state));
  EXPECT_EQ(read.position.at(11), 14.5);
  for (const char* key : {"step", "done", "per_step", "length", "steps_per_pass", "last_step", "epochs"}) {
    for (const nlohmann::json& value : {nlohmann::json(-1), nlohmann::json("x"), nlohmann::json()}) {
      nlohmann::json damaged = text;
      damaged[key] = value;
      EXPECT_THROW(parse_schedule_state(damaged, "state.json"), DataError) << key << " " << value;
    }
  }
}

TEST(FitOptions, HaveOneSchedule) {
  run_ranks(1, "native", [](Context& context) {
    const auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    FitOptions options{.steps = 1};
    options.named_schedule = {.kind = "linear"};
    options.schedule = make_schedule({});
    EXPECT_THROW(trainer.fit(std::make_shared<Digits>(60), options), UsageError);
    options.schedule = {};
    options.named_schedule->kind = "sine";
    EXPECT_THROW(trainer.fit(std::make_shared<Digits>(60), options), UsageError);
  });
}

}  // namespace
}  // namespace rondo::schedule_resume_test
