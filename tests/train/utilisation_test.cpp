#include "rondo/train/utilisation.h"

#include <gtest/gtest.h>

#include "tests/backend/ranks.h"
#include "tests/train/digits.h"

namespace rondo::utilisation_test {
namespace {

constexpr double kPeak = 1e12;                                // a rank's peak in operations per second
constexpr double kForwardOfSample = 2.0 * (8 * 16 + 16 * 8);  // operations of testing::small_model()

// A callback that records the operations of a sample, computed from each step's utilisation.
class Noted final : public Callback {
 public:
  std::string name() const override { return "noted"; }
  void on_train_begin(Trainer& trainer, const FitOutline&) override { utilisation_.emplace(trainer, kPeak); }
  void on_step_begin(Trainer&, std::int64_t) override { utilisation_->begin_step(); }
  void on_step_end(Trainer& trainer, const StepRecord& record) override {
    const double seconds = record.times.step_ms * 1e-3;
    const double ranks = trainer.strategy().context().world_size();
    flops_.push_back(utilisation_->end_step(trainer, record).value() * seconds * ranks * kPeak /
                     static_cast<double>(record.samples));
  }
  const std::vector<double>& flops_of_sample() const { return flops_; }

 private:
  std::optional<Utilisation> utilisation_;
  std::vector<double> flops_;
};

struct Way {
  const char* strategy;
  int ranks;  // threads of this process
  OptionValues options = {};
};

TEST(Utilisation, CountsEachSampleOnceOnRanksAndReplicas) {
  for (const Way& way :
       {Way{"one_device", 1}, Way{"ddp", 2}, Way{"ddp", 3}, Way{"zero3", 2},
        Way{"mirrored", 1, {{"replicas", "2"}}}, Way{"multi_worker_mirrored", 2, {{"replicas", "2"}}}}) {
    testing::run_ranks(way.ranks, "native", [&](Context& context) {
      const auto strategy = all_strategies().make(way.strategy, context, way.options);
      Trainer trainer(
          *strategy, [] { return testing::small_model(); }, testing::adamw(), cross_entropy);
      const auto noted = std::make_shared<Noted>();
      FitOptions options;
      options.steps = 3;
      options.batch_size = 4;
      options.callbacks = {noted};
      trainer.fit(std::make_shared<testing::Digits>(96), options);
      ASSERT_EQ(noted->flops_of_sample().size(), 3U);
      for (const double flops : noted->flops_of_sample())
        EXPECT_NEAR(flops, 3 * kForwardOfSample, 1e-6 * flops) << way.strategy << " on " << way.ranks;
    });
  }
}

}  // namespace
}  // namespace rondo::utilisation_test
