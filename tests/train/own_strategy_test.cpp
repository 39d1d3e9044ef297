// A custom strategy with the minimal interface: figures, requests to stop and failures of callbacks cover all
// ranks.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/strategy/process_strategy.h"
#include "rondo/train/agreement.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/train/digits.h"

namespace rondo::own_strategy_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::expect_facts;
using testing::Recorder;
using testing::run_ranks;
using testing::small_model;

// A model that averages gradients by one all-reduce each.
class PlainModel final : public PreparedModel {
 public:
  PlainModel(std::shared_ptr<torch::nn::Module> module, const Group& group)
      : module_(std::move(module)), parts_(*module_, group) {
    for (at::Tensor parameter : module_->parameters()) broadcast(parameter, group, 0);
  }
  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }

 protected:
  void start_pass(const LocalBatch& batch) override { samples_ = batch.samples; }
  void finish_pass() override {
    const Group& group = parts_.group();
    at::Tensor all = torch::tensor({samples_}, torch::kLong);
    all_reduce(all, group);
    const double share = static_cast<double>(samples_) / static_cast<double>(all.item<std::int64_t>());
    for (const at::Tensor& parameter : module_->parameters()) {
      at::Tensor gradient = parameter.grad();
      gradient.mul_(share);
      all_reduce(gradient, group);
    }
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  UndividedModel parts_;
  std::int64_t samples_ = 0;
};

class PlainStrategy final : public ProcessStrategy {
 public:
  explicit PlainStrategy(const Context& context) : ProcessStrategy("plain", context) {}
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override {
    return std::make_unique<PlainModel>(std::move(module), context().world());
  }
};

struct Trained {
  std::vector<double> losses;
  std::vector<std::int64_t> samples;
  FitResult result;
};

Trained train(Context& context, Strategy& strategy, int stops_on = -1) {
  Trainer trainer(strategy, small_model(), adamw(), cross_entropy);
  const auto recorder = std::make_shared<Recorder>();
  int asked = 0;
  Trained trained;
  trained.result = trainer.fit(
      std::make_shared<Digits>(44),
      {.epochs = 2, .batch_size = 4, .accumulate = 2, .callbacks = {recorder}, .stop_requested = [&] {
         return context.rank() == stops_on && ++asked == 3;
       }});
  trained.losses = recorder->losses();
  for (const StepRecord& step : recorder->steps_) trained.samples.push_back(step.samples);
  return trained;
}

TEST(CustomStrategy, HasTheFiguresOfAllRanks) {
  run_ranks(3, "native", [](Context& context) {
    PlainStrategy plain(context);
    const Trained own = train(context, plain);
    const auto ddp = all_strategies().make("ddp", context);
    const Trained expected = train(context, *ddp);
    EXPECT_EQ(own.samples, expected.samples);
    ASSERT_EQ(own.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(own.losses[i], expected.losses[i], 1e-5) << i;
  });
}

TEST(CustomStrategy, HearsARequestToStopOfAnyRank) {
  for (const int rank : {0, 2}) {
    run_ranks(3, "native", [&](Context& context) {
      PlainStrategy plain(context);
      const FitResult result = train(context, plain, rank).result;
      EXPECT_EQ(result.end, FitEnd::preempted);
      EXPECT_EQ(result.step, 3);
    });
  }
}

TEST(CustomStrategy, HearsOfAFailingCallbackOnAnyRank) {
  std::atomic<int> told{0};
  run_ranks(3, "native", [&](Context& context) {
    struct Fails final : Callback {
      std::string name() const override { return "fails"; }
      void on_step_end(Trainer& trainer, const StepRecord& record) override {
        last = record.step;
        if (record.step == 2 && trainer.strategy().context().rank() == 1) throw Error("no room");
      }
      std::int64_t last = 0;
    };
    const auto fails = std::make_shared<Fails>();
    PlainStrategy plain(context);
    Trainer trainer(plain, small_model(), adamw(), cross_entropy);
    try {
      trainer.fit(std::make_shared<Digits>(44), {.epochs = 9, .batch_size = 4, .callbacks = {fails}});
      ADD_FAILURE();
    } catch (const AgreedError& error) {
      expect_facts(error.what(), {"rank 1", "fails", "no room"});
      EXPECT_LE(fails->last, 3);
      ++told;
    }
  });
  EXPECT_EQ(told, 3);
}

// In a custom loop the group is that of the model.
TEST(CustomStrategy, SumsTotalsInACustomLoop) {
  run_ranks(3, "native", [](Context& context) {
    PlainStrategy plain(context);
    const auto prepared = plain.prepare(small_model().module);
    prepared->announce(
        {.loss = 1.5, .predictions = 2, .samples = 1 + context.rank(), .stop = context.rank() == 2});
    const StepTotals totals = prepared->totals();
    EXPECT_EQ(totals.loss, 4.5);
    EXPECT_EQ(totals.predictions, 6);
    EXPECT_EQ(totals.samples, 6);
    EXPECT_TRUE(totals.stop);
  });
}

}  // namespace
}  // namespace rondo::own_strategy_test
