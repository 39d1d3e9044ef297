#include "rondo/train/histograms.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/backend/ranks.h"
#include "tests/train/digits.h"

namespace rondo::histograms_test {
namespace {

using testing::Digits;
using testing::run_ranks;

// A callback that takes histograms after each step.
class Taken final : public Callback {
 public:
  std::string name() const override { return "taken"; }
  bool wants_gradient_norm(std::int64_t) const override { return true; }
  void on_step_end(Trainer& trainer, const StepRecord&) override { histograms_ = histograms_of(trainer); }
  std::map<std::string, Histogram> histograms_;
};

std::map<std::string, Histogram> after_training(const std::string& strategy, int ranks) {
  std::map<std::string, Histogram> result;
  run_ranks(ranks, "native", [&](Context& context) {
    const auto own = all_strategies().make(strategy, context);
    Trainer trainer(*own, testing::small_model(), testing::adamw(), cross_entropy);
    const auto taken = std::make_shared<Taken>();
    trainer.fit(std::make_shared<Digits>(64),
                {.steps = 3, .batch_size = 12 / ranks, .seed = 5, .callbacks = {taken}});
    if (context.rank() == 0) {
      result = taken->histograms_;
    } else {
      EXPECT_TRUE(taken->histograms_.empty());
    }
  });
  return result;
}

TEST(Histograms, AreOfTheWholeModelUnderEveryStrategy) {
  const auto alone = after_training("one_device", 1);
  ASSERT_EQ(alone.size(), 8U);  // weights and biases of two layers, and their gradients
  const Histogram& weights = alone.at("weights/0.weight");
  EXPECT_EQ(weights.count, 8 * 16);
  EXPECT_EQ(std::accumulate(weights.counts.begin(), weights.counts.end(), 0.0), 8 * 16);
  EXPECT_TRUE(std::is_sorted(weights.limits.begin(), weights.limits.end()));
  EXPECT_LE(weights.max, weights.limits.back());
  EXPECT_EQ(weights.limits.size(), weights.counts.size());
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    const auto several = after_training(strategy, 2);
    ASSERT_EQ(several.size(), alone.size()) << strategy;
    for (const auto& [tag, histogram] : alone) {
      const Histogram& other = several.at(tag);
      EXPECT_EQ(other.count, histogram.count) << strategy << " " << tag;
      EXPECT_NEAR(other.min, histogram.min, 1e-4) << strategy << " " << tag;
      EXPECT_NEAR(other.max, histogram.max, 1e-4) << strategy << " " << tag;
      EXPECT_NEAR(other.sum_of_squares, histogram.sum_of_squares, 1e-3) << strategy << " " << tag;
    }
  }
}

}  // namespace
}  // namespace rondo::histograms_test
