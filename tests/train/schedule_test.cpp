#include "rondo/train/schedule.h"

#include <gtest/gtest.h>

#include <string>

#include "rondo/base/error.h"
#include "tests/errors.h"

namespace rondo::schedule_test {
namespace {

TEST(Schedule, ConstantWithWarmUpRisesThenStays) {
  const LearningRateSchedule rate =
      make_schedule({.kind = "constant", .learning_rate = 0.8, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(rate(0), 0.2);
  EXPECT_DOUBLE_EQ(rate(3), 0.8);
  EXPECT_DOUBLE_EQ(rate(1000000), 0.8);
}

TEST(Schedule, CosineFallsFromWarmUpToItsEnd) {
  const LearningRateSchedule rate = make_schedule(
      {.kind = "cosine", .learning_rate = 1.0, .warmup_steps = 10, .total_steps = 110, .end_fraction = 0.1});
  EXPECT_DOUBLE_EQ(rate(9), 1.0);
  EXPECT_DOUBLE_EQ(rate(10), 1.0);
  EXPECT_NEAR(rate(60), 0.55, 1e-12);
  EXPECT_NEAR(rate(110), 0.1, 1e-12);
  EXPECT_NEAR(rate(500), 0.1, 1e-12);
  for (int step = 11; step <= 110; ++step) EXPECT_LT(rate(step), rate(step - 1)) << step;
}

TEST(Schedule, LinearFallsEvenly) {
  const LearningRateSchedule rate =
      make_schedule({.kind = "linear", .learning_rate = 1.0, .total_steps = 10});
  EXPECT_DOUBLE_EQ(rate(0), 1.0);
  EXPECT_NEAR(rate(5), 0.5, 1e-12);
  EXPECT_NEAR(rate(10), 0.0, 1e-12);
}

TEST(Schedule, StepDropsAtIntervalsAfterWarmUp) {
  const LearningRateSchedule rate = make_schedule(
      {.kind = "step", .learning_rate = 1.0, .warmup_steps = 5, .decay_every = 10, .decay_factor = 0.5});
  EXPECT_DOUBLE_EQ(rate(14), 1.0);
  EXPECT_DOUBLE_EQ(rate(15), 0.5);
  EXPECT_DOUBLE_EQ(rate(25), 0.25);
}

TEST(Schedule, RejectsWhatCannotBe) {
  testing::expect_facts(testing::message_of<UsageError>([] { make_schedule({.kind = "cosin"}); }),
                        {"'cosin'", "constant", "cosine", "linear", "step"});
  EXPECT_THROW(make_schedule({.learning_rate = -1}), UsageError);
  EXPECT_THROW(make_schedule({.warmup_steps = -1}), UsageError);
  EXPECT_THROW(make_schedule({.end_fraction = 1.5}), UsageError);
  EXPECT_THROW(make_schedule({.decay_every = 0}), UsageError);
}

}  // namespace
}  // namespace rondo::schedule_test
