#include <gtest/gtest.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/nn/wrap.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::precision_training_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::Recorder;
using testing::Rows;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;

constexpr PrecisionOptions kAutocast{.level = OptLevel::O1, .dtype = at::kBFloat16};
constexpr PrecisionOptions kMasters{.level = OptLevel::O2, .dtype = at::kHalf};

// Digits with one NaN sample.
class Poisoned final : public Dataset {
 public:
  Poisoned(std::int64_t size, std::int64_t bad) : digits_(size), bad_(bad) {}
  std::int64_t size() const override { return digits_.size(); }
  Batch get(std::span<const std::int64_t> indices) const override {
    Batch batch = digits_.get(indices);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] == bad_) batch.inputs[0][static_cast<std::int64_t>(i)].fill_(NAN);
    }
    return batch;
  }
  const DatasetInfo& info() const override { return digits_.info(); }

 private:
  Digits digits_;
  std::int64_t bad_;
};

// A callback that records the optimizer's weights after each step.
class WeightsByStep final : public Callback {
 public:
  std::string name() const override { return "weights_by_step"; }
  void on_step_end(Trainer& trainer, const StepRecord&) override {
    steps.push_back(trainer.optimizer().param_groups().front().params().front().detach().clone());
  }
  std::vector<at::Tensor> steps;
};

struct Outcome {
  std::vector<StepRecord> steps;
  std::vector<at::Tensor> weights;  // by step: the optimizer's first parameter
  std::vector<at::ScalarType> dtypes;
  std::map<std::string, double> validation;
};

Outcome train_on(int ranks, const PrecisionOptions& precision, const std::shared_ptr<Dataset>& data,
                 FitOptions options) {
  Outcome outcome;
  run_ranks(ranks, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const Model model = small_model();
    Trainer trainer(*strategy, model, c10::kCPU, precision);
    trainer.compile(adamw());
    const auto recorder = std::make_shared<Recorder>();
    const auto weights = std::make_shared<WeightsByStep>();
    FitOptions own = options;
    own.callbacks = {recorder, weights};
    trainer.fit(data, own);
    const auto validation = trainer.evaluate(Digits(40, 2));
    if (context.rank() != 0) return;
    outcome = {recorder->steps_, weights->steps, {}, validation};
    for (const at::Tensor& p : model.module->parameters()) outcome.dtypes.push_back(p.scalar_type());
  });
  return outcome;
}

TEST(PrecisionTraining, EveryLevelLearnsWhatFloat32Learns) {
  const auto data = std::make_shared<Digits>(200);
  const FitOptions options{.epochs = 4, .batch_size = 20, .clip_norm = 1.0};
  const Outcome exact = train_on(1, {}, data, options);
  EXPECT_FALSE(exact.steps.front().loss_scale);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const OptLevel level : {OptLevel::O1, OptLevel::O2, OptLevel::O3}) {
      const Outcome outcome = train_on(1, {.level = level, .dtype = dtype}, data, options);
      const bool narrow = level != OptLevel::O1;
      EXPECT_EQ(outcome.dtypes.front(), narrow ? dtype : at::kFloat);
      EXPECT_EQ(outcome.weights.front().scalar_type(), level == OptLevel::O3 ? dtype : at::kFloat);
      EXPECT_EQ(outcome.steps.front().loss_scale.has_value(), dtype == at::kHalf && level != OptLevel::O3);
      const double tolerance = level == OptLevel::O3 ? 0.15 : 0.03;
      EXPECT_NEAR(outcome.steps.back().loss, exact.steps.back().loss, tolerance) << static_cast<int>(level);
      EXPECT_NEAR(outcome.validation.at("loss"), exact.validation.at("loss"), tolerance);
      EXPECT_NE(outcome.steps.back().loss, exact.steps.back().loss) << "nothing was computed in " << dtype;
    }
  }
}

TEST(PrecisionTraining, SeveralRanksEqualOneProcess) {
  const auto data = std::make_shared<Digits>(50);
  const PrecisionOptions scaled{
      .level = OptLevel::O1, .dtype = at::kBFloat16, .loss_scale = LossScale{.dynamic = true}};
  for (const PrecisionOptions& precision : {kAutocast, scaled}) {
    const Outcome one = train_on(1, precision, data, {.epochs = 2, .batch_size = 12});
    for (const int ranks : {2, 3}) {
      const Outcome several = train_on(ranks, precision, data, {.epochs = 2, .batch_size = 12 / ranks});
      ASSERT_EQ(several.steps.size(), one.steps.size());
      EXPECT_TRUE(at::allclose(several.weights.back(), one.weights.back(), 1e-2, 2e-3)) << ranks;
      EXPECT_EQ(several.steps.back().loss_scale, one.steps.back().loss_scale);
    }
  }
}

TEST(PrecisionTraining, AllSkipBadGradientAndHalveTheScale) {
  // In order, with a global batch of 8, sample 17 is in the third batch.
  const auto data = std::make_shared<Poisoned>(64, 17);
  for (const int ranks : {1, 2}) {
    for (const PrecisionOptions& precision :
         {PrecisionOptions{.level = OptLevel::O1, .dtype = at::kHalf}, kMasters,
          PrecisionOptions{.level = OptLevel::O1, .loss_scale = LossScale{.dynamic = true}}}) {
      const Outcome outcome = train_on(
          ranks, precision, data, {.steps = 6, .batch_size = 8 / ranks, .shuffle = false, .clip_norm = 1.0});
      ASSERT_EQ(outcome.steps.size(), 6U);
      EXPECT_TRUE(std::isnan(outcome.steps[2].loss));
      EXPECT_TRUE(at::equal(outcome.weights[2], outcome.weights[1]));
      EXPECT_EQ(*outcome.steps[3].loss_scale, *outcome.steps[2].loss_scale / 2);
      EXPECT_FALSE(at::equal(outcome.weights[4], outcome.weights[2]));
      for (const StepRecord& step : outcome.steps) {
        EXPECT_EQ(std::isfinite(step.loss), step.step != 3) << step.step;
      }
    }
  }
}

TEST(PrecisionTraining, AConstantScaleStaysWhateverHappens) {
  const Outcome outcome =
      train_on(1, {.level = OptLevel::O2, .dtype = at::kHalf, .loss_scale = LossScale{.value = 128}},
               std::make_shared<Poisoned>(64, 17), {.steps = 5, .batch_size = 8, .shuffle = false});
  for (const StepRecord& step : outcome.steps) EXPECT_EQ(step.loss_scale, 128);
  EXPECT_TRUE(at::equal(outcome.weights[2], outcome.weights[1]));
}

TEST(PrecisionTraining, ClipsUnscaledGradientsOfMasters) {
  run_ranks(1, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), c10::kCPU, {.level = OptLevel::O2, .dtype = at::kHalf});
    std::vector<at::Tensor> before;
    trainer.compile([&](torch::nn::Module& module) {
      for (const at::Tensor& p : module.parameters()) before.push_back(p.detach().clone());
      return make_optimizer({.name = "sgd", .learning_rate = 2.0}, module);
    });
    trainer.fit(std::make_shared<Digits>(8), {.steps = 1, .batch_size = 8, .clip_norm = 1e-3});
    double moved = 0;
    const auto& after = trainer.optimizer().param_groups().front().params();
    for (std::size_t i = 0; i < after.size(); ++i)
      moved += (after[i].detach() - before[i]).pow(2).sum().item<double>();
    EXPECT_NEAR(std::sqrt(moved), 2.0 * 1e-3, 1e-5);
  });
}

TEST(PrecisionTraining, ResumesMastersAndScaleBitForBit) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto data = std::make_shared<Poisoned>(50, 30);
    const auto options = [&](std::int64_t steps, std::vector<std::shared_ptr<Callback>> callbacks) {
      return FitOptions{.steps = steps, .batch_size = 8, .callbacks = std::move(callbacks)};
    };
    const auto make = [&] {
      auto trainer = std::make_unique<Trainer>(*strategy, small_model(0.5), c10::kCPU, kMasters);
      trainer->compile(adamw());
      return trainer;
    };
    const auto weights = std::make_shared<WeightsByStep>();
    const auto straight = make();
    torch::manual_seed(3);
    straight->fit(data, options(20, {weights}));

    const auto first = make();
    torch::manual_seed(3);
    first->fit(data, options(10, {std::make_shared<ModelCheckpoint>(
                                     ModelCheckpoint::Options{.directory = directory.path()})}));
    EXPECT_LT(*first->precision().loss_scale(), 65536);  // the bad sample occurred

    const auto second = make();
    second->restore(directory.path());
    EXPECT_EQ(second->precision().state(), first->precision().state());
    const auto resumed = std::make_shared<WeightsByStep>();
    second->fit(data, options(20, {resumed}));
    ASSERT_EQ(resumed->steps.size(), 10U);
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_TRUE(at::equal(resumed->steps[i], weights->steps[10 + i])) << i;

    // A checkpoint has the master weights: a float32 model from which any other level can start.
    const Model plain = small_model(0.5);
    load_weights(directory.path(), named_tensors(*plain.module));
    EXPECT_TRUE(at::equal(plain.module->parameters().front(),
                          first->optimizer().param_groups().front().params().front()));
  });
}

// The float32 shards are the master weights, and the contents of checkpoints.
TEST(PrecisionTraining, ShardedStrategiesKeepTheMastersThemselves) {
  const auto data = std::make_shared<Digits>(80);
  const FitOptions options{.epochs = 2, .batch_size = 10, .clip_norm = 1.0};
  const Outcome replicated = train_on(2, kMasters, data, options);
  for (const std::string name : {"zero1", "zero3"}) {
    const TemporaryDirectory directory;
    run_ranks(2, "native", [&](Context& context) {
      const auto strategy = all_strategies().make(name, context);
      const Model model = small_model();
      Trainer trainer(*strategy, model, c10::kCPU, kMasters);
      trainer.compile(adamw());
      const auto recorder = std::make_shared<Recorder>();
      FitOptions own = options;
      own.callbacks = {recorder};
      trainer.fit(data, own);
      EXPECT_EQ(model.module->parameters().front().scalar_type(), at::kHalf);
      EXPECT_EQ(trainer.optimizer().param_groups().front().params().front().scalar_type(), at::kFloat);
      EXPECT_NEAR(recorder->steps_.back().loss, replicated.steps.back().loss, 0.03) << name;
      trainer.save(directory.path(), 1);
      const auto weights = trainer.predict(Digits(10, 3));
      trainer.restore(directory.path());
      EXPECT_TRUE(at::equal(trainer.predict(Digits(10, 3)), weights)) << name;
      const Model plain = small_model(0.5);  // float32
      load_weights(directory.path(), named_tensors(*plain.module));
      barrier(context.world());
    });
  }
}

// Dtypes and loss after training a small convolutional net whose layers are units on two ranks.
struct BatchNormOutcome {
  at::ScalarType norms;
  at::ScalarType others;
  double loss = 0;
};

BatchNormOutcome train_with_batch_norm(const std::string& strategy_name, const PrecisionOptions& precision) {
  const at::Tensor images = at::randn({40, 1, 8, 8}, at::detail::createCPUGenerator(6));
  const auto data = std::make_shared<Rows>(images, (images.mean({1, 2, 3}) > 0).to(at::kLong), 2);
  BatchNormOutcome outcome{};
  run_ranks(2, "native", [&](Context& context) {
    const auto strategy = all_strategies().make(strategy_name, context);
    static std::mutex mutex;  // the default generator is shared
    const Model model = [] {
      const std::lock_guard lock(mutex);
      torch::manual_seed(3);
      return make_model("convnet", {{"input_shape", {1, 8, 8}},
                                    {"features", {4}},
                                    {"hidden", 8},
                                    {"classes", 2},
                                    {"batch_norm", true}});
    }();
    wrap_units(*model.module, wrap_all());
    Trainer trainer(*strategy, model, c10::kCPU, precision);
    trainer.compile(adamw());
    const auto recorder = std::make_shared<Recorder>();
    trainer.fit(data, {.epochs = 2, .batch_size = 10, .callbacks = {recorder}});
    if (context.rank() != 0) return;
    const auto parameters = model.module->named_parameters();
    outcome = {parameters["features.1.weight"].scalar_type(), parameters["features.0.weight"].scalar_type(),
               recorder->steps_.back().loss};
  });
  return outcome;
}

TEST(PrecisionTraining, ShardedBatchNormsStayInFloat32) {
  const PrecisionOptions o2{.level = OptLevel::O2};
  const PrecisionOptions o3{.level = OptLevel::O3};
  PrecisionOptions o2_without = o2;
  o2_without.keep_batchnorm_fp32 = false;
  PrecisionOptions o3_with = o3;
  o3_with.keep_batchnorm_fp32 = true;
  const std::vector<std::pair<PrecisionOptions, at::ScalarType>> cases = {
      {o2, at::kFloat}, {o2_without, at::kBFloat16}, {o3, at::kBFloat16}, {o3_with, at::kFloat}};
  for (const auto& [precision, expected] : cases) {
    const double replicated = train_with_batch_norm("ddp", precision).loss;
    for (const std::string strategy : {"zero1", "zero3"}) {
      const BatchNormOutcome outcome = train_with_batch_norm(strategy, precision);
      EXPECT_EQ(outcome.norms, expected) << strategy;
      EXPECT_EQ(outcome.others, at::kBFloat16) << strategy;
      EXPECT_NEAR(outcome.loss, replicated, 0.05) << strategy;
    }
  }
}

}  // namespace
}  // namespace rondo::precision_training_test
