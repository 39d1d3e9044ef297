#include "rondo/train/trainer.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/early_stopping.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::trainer_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::expect_facts;
using testing::Recorder;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
};

// Returns a training on `ranks` ranks, as rank 0 observed it.
Outcome train_on(int ranks, std::int64_t samples, FitOptions options) {
  Outcome outcome;
  run_ranks(ranks, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const Model model = small_model();
    Trainer trainer(*strategy, model, adamw(), cross_entropy);
    auto recorder = std::make_shared<Recorder>();
    FitOptions own = options;
    own.callbacks.push_back(recorder);
    trainer.fit(std::make_shared<Digits>(samples), own);
    if (context.rank() != 0) return;
    outcome.losses = recorder->losses();
    for (const at::Tensor& p : model.module->parameters()) outcome.parameters.push_back(p.detach().clone());
  });
  return outcome;
}

struct HeldImpl : torch::nn::Module {
  HeldImpl() : linear(register_module("linear", torch::nn::Linear(2, 2))) {}
  at::Tensor forward(const at::Tensor& input) { return linear(input); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Held);

TEST(Trainer, TakesAModuleHolder) {
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Held net;
    Trainer trainer(*strategy, net);
    EXPECT_EQ(trainer.model().module.get(), net.get());
    Trainer made(*strategy, Held());
    EXPECT_EQ(made.model().module->parameters().size(), 2);
  });
}

TEST(Trainer, RefusesNullDataAndCallbacksOnEveryRank) {
  run_ranks(2, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    const auto data = std::make_shared<Digits>(100);
    const bool mistaken = context.rank() == 1;
    expect_facts(testing::message_of<Error>([&] { trainer.fit(mistaken ? nullptr : data, {}); }),
                 {"the data set is null"});
    expect_facts(testing::message_of<Error>([&] {
                   trainer.fit(data, {.callbacks = {std::make_shared<Recorder>(),
                                                    mistaken ? nullptr : std::make_shared<Recorder>()}});
                 }),
                 {"callback", "1", "null"});
    EXPECT_EQ(trainer.fit(data, {.steps = 1}).step, 1);
    const std::shared_ptr<HeldImpl> nothing;
    EXPECT_THROW(Trainer(*strategy, nothing), UsageError);
    EXPECT_THROW(Trainer(*strategy, Model{}), UsageError);
    EXPECT_THROW(strategy->distribute(std::shared_ptr<const Dataset>(), {}), UsageError);
  });
}

void expect_same_training(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5) << "step " << i;
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a.parameters[i], b.parameters[i], 1e-4, 1e-5)) << "parameter " << i;
  }
}

TEST(Trainer, LearnsAndTellsItsCallbacks) {
  run_ranks(1, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model());
    trainer.compile(adamw(), cross_entropy, {loss_metric(), accuracy_metric(), perplexity_metric()});
    auto recorder = std::make_shared<Recorder>();
    const auto validation = std::make_shared<Digits>(100, 2);
    const auto before = trainer.evaluate(*validation);
    const FitResult result =
        trainer.fit(std::make_shared<Digits>(250),
                    {.epochs = 8, .batch_size = 25, .validation = validation, .callbacks = {recorder}});
    EXPECT_EQ(result.end, FitEnd::finished);
    EXPECT_EQ(result.step, 80);
    EXPECT_LT(result.validation.at("loss"), 0.7 * before.at("loss"));
    EXPECT_GT(result.validation.at("accuracy"), before.at("accuracy"));
    EXPECT_NEAR(result.validation.at("perplexity"), std::exp(result.validation.at("loss")), 1e-9);

    EXPECT_EQ(recorder->outline_.steps_per_epoch, 10);
    EXPECT_EQ(recorder->outline_.total_steps, 80);
    ASSERT_EQ(recorder->steps_.size(), 80U);
    EXPECT_EQ(recorder->steps_[14].step, 15);
    EXPECT_EQ(recorder->steps_[14].epoch, 1);
    EXPECT_DOUBLE_EQ(recorder->steps_[14].epochs_done, 1.5);
    EXPECT_EQ(recorder->steps_[14].samples, 25);
    EXPECT_GT(recorder->steps_[14].rate, 0);
    EXPECT_EQ(recorder->epochs_, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(recorder->validations_.size(), 8U);
    EXPECT_EQ(recorder->validations_[1].epoch, 1);
  });
}

TEST(Trainer, SeveralRanksEqualOneProcess) {
  // 50 samples: the last global batch of an epoch has 2, so one of three ranks has none.
  const Outcome one = train_on(1, 50, {.epochs = 3, .batch_size = 12});
  EXPECT_EQ(one.losses.size(), 15U);
  expect_same_training(one, train_on(2, 50, {.epochs = 3, .batch_size = 6}));
  expect_same_training(one, train_on(3, 50, {.epochs = 3, .batch_size = 4}));
}

TEST(Trainer, AccumulatedBatchesEqualOneLargeBatch) {
  const Outcome one = train_on(1, 53, {.epochs = 2, .batch_size = 16});
  expect_same_training(one, train_on(1, 53, {.epochs = 2, .batch_size = 4, .accumulate = 4}));
  expect_same_training(one, train_on(2, 53, {.epochs = 2, .batch_size = 4, .accumulate = 2}));
}

TEST(Trainer, ClipsGradientsAndFollowsTheSchedule) {
  run_ranks(1, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    const Model model = small_model();
    Trainer trainer(
        *strategy, model, [](torch::nn::Module& m) { return make_optimizer({.name = "sgd"}, m); },
        cross_entropy);
    std::vector<at::Tensor> before;
    for (const at::Tensor& p : model.module->parameters()) before.push_back(p.detach().clone());
    auto recorder = std::make_shared<Recorder>();
    trainer.fit(std::make_shared<Digits>(8),
                {.steps = 1,
                 .batch_size = 8,
                 .schedule = [](std::int64_t step) { return step == 0 ? 2.0 : 0.0; },
                 .clip_norm = 1e-3,
                 .callbacks = {recorder}});
    double moved = 0;
    const auto after = model.module->parameters();
    for (std::size_t i = 0; i < after.size(); ++i)
      moved += (after[i] - before[i]).pow(2).sum().item<double>();
    EXPECT_NEAR(std::sqrt(moved), 2.0 * 1e-3, 1e-6);
    EXPECT_DOUBLE_EQ(recorder->steps_[0].learning_rate, 2.0);
  });
}

TEST(Trainer, EvaluationIsBitEqualForAnyRanks) {
  std::map<int, std::map<std::string, double>> by_ranks;
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = strategy_for(context);
      Trainer trainer(*strategy, small_model());
      trainer.compile(adamw(), cross_entropy, {loss_metric(), accuracy_metric()});
      const auto values = trainer.evaluate(Digits(41), {.batch_size = 4});
      if (context.rank() == ranks - 1) by_ranks[ranks] = values;
    });
  }
  EXPECT_EQ(by_ranks[1], by_ranks[2]);
  EXPECT_EQ(by_ranks[1], by_ranks[3]);

  // Every sample counts once: the mean over samples, not over batches of 4 and 1.
  const Model model = small_model();
  const Digits data(41);
  std::vector<std::int64_t> all(41);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = data.get(all);
  const torch::NoGradGuard no_gradients;
  EXPECT_NEAR(by_ranks[1]["loss"],
              cross_entropy(model.forward(batch.input()), batch.target()).mean.item<double>(), 1e-6);
}

TEST(Trainer, PredictsInTheOrderOfTheData) {
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = strategy_for(context);
      const Model model = small_model();
      Trainer trainer(*strategy, model, adamw(), cross_entropy);
      for (const std::int64_t samples : {2, 23}) {  // with 2 samples some ranks have no batch
        const Digits data(samples);
        std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
        std::iota(all.begin(), all.end(), 0);
        const torch::NoGradGuard no_gradients;
        const at::Tensor expected = model.forward(data.get(all).input());
        EXPECT_TRUE(torch::allclose(trainer.predict(data, {.batch_size = 4}), expected, 1e-5, 1e-6)) << ranks;
      }
    });
  }
}

// A data set that omits samples, as a folder of images omits undecodable ones: they have no row in any batch.
class WithGaps final : public Dataset {
 public:
  WithGaps(std::int64_t size, std::vector<std::int64_t> gaps) : data_(size), gaps_(std::move(gaps)) {}
  std::int64_t size() const override { return data_.size(); }
  const DatasetInfo& info() const override { return data_.info(); }
  Batch get(std::span<const std::int64_t> indices) const override {
    return data_.get(without_gaps({indices.begin(), indices.end()}));
  }
  std::vector<std::int64_t> without_gaps(std::vector<std::int64_t> indices) const {
    std::erase_if(indices, [this](std::int64_t index) {
      return std::find(gaps_.begin(), gaps_.end(), index) != gaps_.end();
    });
    return indices;
  }

 private:
  Digits data_;
  std::vector<std::int64_t> gaps_;
};

TEST(Trainer, PredictsWhatTheDataDoesNotLeaveOut) {
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = strategy_for(context);
      const Model model = small_model();
      Trainer trainer(*strategy, model, adamw(), cross_entropy);
      const WithGaps data(23, {1, 8, 9, 10, 11, 21});  // the third batch of 4 is empty
      std::vector<std::int64_t> all(23);
      std::iota(all.begin(), all.end(), 0);
      const torch::NoGradGuard no_gradients;
      const at::Tensor expected = model.forward(data.get(all).input());
      const at::Tensor predicted = trainer.predict(data, {.batch_size = 4});
      ASSERT_EQ(predicted.sizes(), expected.sizes()) << ranks;
      EXPECT_TRUE(torch::allclose(predicted, expected, 1e-5, 1e-6)) << ranks;
    });
  }
}

TEST(Trainer, RequestOfOneRankStopsAllTogether) {
  std::vector<std::int64_t> steps(3, -1);
  run_ranks(3, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    int asked = 0;
    const FitResult result =
        trainer.fit(std::make_shared<Digits>(90), {.epochs = 5, .batch_size = 3, .stop_requested = [&] {
                                                     return context.rank() == 1 && ++asked >= 4;
                                                   }});
    EXPECT_EQ(result.end, FitEnd::preempted);
    steps[static_cast<std::size_t>(context.rank())] = result.step;
  });
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 4, 4}));
}

TEST(Trainer, EarlyStoppingEndsTrainingAndRemembers) {
  run_ranks(1, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(/*learning_rate=*/0.0), cross_entropy);
    auto stopping = std::make_shared<EarlyStopping>(EarlyStopping::Options{.patience = 2});
    const FitResult result =
        trainer.fit(std::make_shared<Digits>(40), {.epochs = 50,
                                                   .batch_size = 40,
                                                   .validation = std::make_shared<Digits>(20, 2),
                                                   .callbacks = {stopping}});
    EXPECT_EQ(result.end, FitEnd::early);
    EXPECT_EQ(result.step, 3);  // the first validation sets the best, then two without improvement
    EarlyStopping restored({.patience = 2});
    restored.restore(stopping->state());
    EXPECT_TRUE(restored.wants_to_stop());
  });
}

// Fits of one epoch each are one training: callbacks keep their state from the first fit on, regardless of
// earlier saves or restores.
TEST(Trainer, CallbacksContinueInTheNextFit) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto fit_epoch_by_epoch = [&](Trainer& trainer) {
      const auto stopping = std::make_shared<EarlyStopping>(EarlyStopping::Options{.patience = 2});
      // Saves at the first validation only, because no later one is better.
      const auto best = std::make_shared<ModelCheckpoint>(
          ModelCheckpoint::Options{.directory = directory.path(), .best_of = "loss"});
      FitResult result;
      for (std::int64_t epoch = trainer.position().epoch + 1; epoch <= 6 && result.end == FitEnd::finished;
           ++epoch) {
        result = trainer.fit(std::make_shared<Digits>(40), {.epochs = epoch,
                                                            .batch_size = 40,
                                                            .validation = std::make_shared<Digits>(20, 2),
                                                            .callbacks = {stopping, best}});
      }
      EXPECT_EQ(result.end, FitEnd::early);
      EXPECT_EQ(result.step, 3);  // the first validation sets the best, then two without improvement
    };
    Trainer trainer(*strategy, small_model(), adamw(/*learning_rate=*/0.0), cross_entropy);
    fit_epoch_by_epoch(trainer);
    Trainer resumed(*strategy, small_model(), adamw(/*learning_rate=*/0.0), cross_entropy);
    resumed.restore(directory / checkpoint_name(1));
    fit_epoch_by_epoch(resumed);
  });
}

// Gradients of parameters that the optimizer does not have must not accumulate over steps: the norm for
// clipping would grow.
TEST(Trainer, ParametersOutsideTheOptimizerKeepNoGradients) {
  const auto norms_of = [](const std::string& strategy_name, int ranks, const PrecisionOptions& precision) {
    std::vector<double> norms;
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = all_strategies().make(strategy_name, context);
      Trainer trainer(*strategy, small_model(), c10::kCPU, precision);
      trainer.compile([](torch::nn::Module& module) {
        std::vector<at::Tensor> last_layer;
        for (const auto& parameter : module.named_parameters()) {
          if (parameter.key().starts_with("3.")) last_layer.push_back(parameter.value());
        }
        return std::make_unique<torch::optim::SGD>(last_layer, torch::optim::SGDOptions(0.0));
      });
      auto recorder = std::make_shared<Recorder>();
      trainer.fit(std::make_shared<Digits>(24), {.steps = 4,
                                                 .batch_size = 24 / strategy->num_replicas_in_sync(),
                                                 .shuffle = false,
                                                 .clip_norm = 1e9,
                                                 .callbacks = {recorder}});
      if (context.rank() != 0) return;
      for (const StepRecord& step : recorder->steps_) norms.push_back(step.gradient_norm.value());
    });
    return norms;
  };
  const double norm = norms_of("one_device", 1, {}).front();
  for (const auto& [strategy_name, ranks] : std::vector<std::pair<std::string, int>>{
           {"one_device", 1}, {"ddp", 2}, {"zero1", 2}, {"zero3", 2}, {"pipeline", 2}}) {
    for (const double of_step : norms_of(strategy_name, ranks, {}))
      EXPECT_NEAR(of_step, norm, 1e-5 * norm) << strategy_name;
  }
  for (const double of_step : norms_of("one_device", 1, {.level = OptLevel::O2}))
    EXPECT_NEAR(of_step, norm, 0.05 * norm);
}

// Validations and early stopping of a run, on rank 0.
struct Watched {
  std::vector<std::int64_t> validated;
  std::vector<double> losses;
  FitResult result;
};

// The weights do not change. Validations may still differ in the last bits, which is no improvement.
FitOptions watched_options(const std::shared_ptr<Recorder>& recorder,
                           const std::filesystem::path& directory) {
  return {.steps = 40,
          .batch_size = 5,
          .validation = std::make_shared<Digits>(20, 2),
          .validate_every = 2,
          .validation_batch_size = 1,
          .callbacks = {
              recorder,
              std::make_shared<EarlyStopping>(EarlyStopping::Options{.patience = 3, .minimum_change = 1e-6}),
              std::make_shared<ModelCheckpoint>(
                  ModelCheckpoint::Options{.directory = directory, .every_steps = 2, .keep = 50})}};
}

Watched watched(Context& context, const std::filesystem::path& directory, const std::filesystem::path& from) {
  auto strategy = strategy_for(context);
  Trainer trainer(*strategy, small_model(), adamw(/*learning_rate=*/0.0), cross_entropy);
  if (!from.empty()) trainer.restore(from);
  auto recorder = std::make_shared<Recorder>();
  Watched run;
  run.result = trainer.fit(std::make_shared<Digits>(60), watched_options(recorder, directory));
  for (const ValidationRecord& record : recorder->validations_) run.validated.push_back(record.step);
  run.losses = recorder->losses();
  return run;
}

TEST(Trainer, ACheckpointComesAfterEverythingOfItsStep) {
  for (const int ranks : {1, 2}) {
    const TemporaryDirectory directory;
    run_ranks(ranks, "native", [&](Context& context) {
      const Watched whole = watched(context, directory / "whole", {});
      EXPECT_EQ(whole.result.end, FitEnd::early);
      EXPECT_EQ(whole.result.step, 8);  // the first sets the best, then three without improvement
      const Watched rest = watched(context, directory / "rest", directory / "whole/step-00000004");
      EXPECT_EQ(rest.result.end, FitEnd::early);
      EXPECT_EQ(rest.result.step, 8);
      EXPECT_EQ(rest.validated, (std::vector<std::int64_t>{6, 8}));
      EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 4, whole.losses.end()));
      // A run that was stopped early stays stopped.
      const Watched again = watched(context, directory / "again", directory / "whole");
      EXPECT_EQ(again.result.end, FitEnd::early);
      EXPECT_EQ(again.result.step, 8);
      EXPECT_EQ(again.result.loss, whole.result.loss);
      EXPECT_TRUE(again.losses.empty() && again.validated.empty());
    });
  }
}

// A callback that asks to stop on one rank, after this many batches of validation.
class StopsInValidation final : public Callback {
 public:
  explicit StopsInValidation(int at) : at_(at) {}
  std::string name() const override { return "stops"; }
  void on_validation_progress(Trainer& trainer, std::int64_t, std::int64_t) override {
    if (trainer.strategy().context().rank() == 0 && ++heard_ == at_) stops_ = true;
  }
  bool stops() const { return stops_; }

 private:
  int at_;
  int heard_ = 0;
  std::atomic<bool> stops_{false};
};

TEST(Trainer, StopRequestPostponesValidationToTheResumedRun) {
  for (const int ranks : {1, 3}) {
    const TemporaryDirectory directory;
    run_ranks(ranks, "native", [&](Context& context) {
      const Watched whole = watched(context, directory / "whole", {});
      auto strategy = strategy_for(context);
      Trainer trainer(*strategy, small_model(), adamw(/*learning_rate=*/0.0), cross_entropy);
      auto recorder = std::make_shared<Recorder>();
      auto stops = std::make_shared<StopsInValidation>(2);
      FitOptions options = watched_options(recorder, directory / "parts");
      // One rank stops after the next batch; three, with batches this fast, mostly after the validation.
      options.callbacks.insert(options.callbacks.begin(), stops);
      options.stop_requested = [&] { return stops->stops(); };
      const FitResult stopped = trainer.fit(std::make_shared<Digits>(60), options);
      EXPECT_EQ(stopped.end, FitEnd::preempted);
      EXPECT_EQ(stopped.step, 2);
      EXPECT_LE(recorder->validations_.size(), ranks == 1 ? 0U : 1U);
      const Watched rest = watched(context, directory / "parts", directory / "parts");
      std::vector<std::int64_t> validated;
      for (const ValidationRecord& record : recorder->validations_) validated.push_back(record.step);
      validated.insert(validated.end(), rest.validated.begin(), rest.validated.end());
      EXPECT_EQ(validated, whole.validated);
      EXPECT_EQ(rest.result.step, whole.result.step);
    });
  }
}

TEST(Trainer, ValidatesAsManyBatchesAsItIsTold) {
  run_ranks(2, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    const Digits data(50, 3);
    const auto first = trainer.evaluate(data, {.batch_size = 10, .batches = 3});
    const auto all = trainer.evaluate(data, {.batch_size = 10, .batches = 9});
    EXPECT_NE(first.at("loss"), all.at("loss"));
    EXPECT_EQ(all, trainer.evaluate(data, {.batch_size = 10}));
    std::vector<std::int64_t> indices(30);
    std::iota(indices.begin(), indices.end(), 0);
    const Batch head = data.get(indices);
    EXPECT_EQ(first, trainer.evaluate(testing::Rows(head.input(), head.target(), 8), {.batch_size = 10}));
    EXPECT_THROW(trainer.evaluate(data, {.batches = -1}), UsageError);
  });
}

TEST(Trainer, AFinishedRunKnowsItsLossAndValidation) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const FitOptions options{.steps = 3, .batch_size = 5, .validation = std::make_shared<Digits>(20, 2)};
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    const FitResult result = trainer.fit(std::make_shared<Digits>(60), options);
    ASSERT_TRUE(result.loss.has_value());
    trainer.save(directory.path(), 1);
    Trainer resumed(*strategy, small_model(), adamw(), cross_entropy);
    resumed.restore(directory.path());
    const FitResult again = resumed.fit(std::make_shared<Digits>(60), options);
    EXPECT_EQ(again.loss, result.loss);
    EXPECT_EQ(again.validation, result.validation);
    EXPECT_EQ(again.end, FitEnd::finished);
  });
}

TEST(Trainer, UnwritableCheckpointIsAnErrorOnAllRanks) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "file";
  std::ofstream(file) << "in the way";
  std::atomic<int> reporters{0};
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    try {
      trainer.save(file / "checkpoints", 1);
      ADD_FAILURE();
    } catch (const AgreedError& e) {
      EXPECT_EQ(e.exit_code(), ExitCode::failed);
      if (e.is_reporter()) ++reporters;
    }
  });
  EXPECT_EQ(reporters, 1);
}

TEST(Trainer, CheckpointOfAnotherModelNamesFirstDifferentTensor) {
  const TemporaryDirectory directory;
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Trainer small(*strategy, small_model(), adamw(), cross_entropy);
    small.save(directory.path(), 1);
    Trainer other(*strategy, torch::nn::Sequential(torch::nn::Linear(9, 16), torch::nn::Linear(16, 8)));
    other.compile(adamw());
    try {
      other.restore(directory.path());
      FAIL();
    } catch (const DataError& e) {
      EXPECT_NE(std::string(e.what()).find("0.weight"), std::string::npos) << e.what();
    }
  });
}

TEST(Trainer, RejectsWhatCannotBe) {
  run_ranks(2, "native", [](Context& context) {
    auto strategy = strategy_for(context);
    Trainer trainer(*strategy, small_model());
    EXPECT_THROW(trainer.fit(std::make_shared<Digits>(40), {}), AgreedError);  // not compiled
    trainer.compile(adamw());
    try {
      trainer.fit(std::make_shared<Digits>(40), {.batch_size = 21});
      FAIL();
    } catch (const AgreedError& e) {
      expect_facts(e.what(), {"21 samples", "2 ranks", "memory", "40 samples"});
    }
    EXPECT_THROW(trainer.fit(std::make_shared<Digits>(40), {.epochs = 0}), AgreedError);
    EXPECT_THROW(trainer.fit(std::make_shared<Digits>(40), {.batch_size = 0}), AgreedError);
    EXPECT_THROW(trainer.fit(std::make_shared<Digits>(40), {.accumulate = 0}), AgreedError);
  });
}

TEST(RunAgreed, OneErrorOfAllRanks) {
  run_ranks(3, "native", [](Context& context) {
    run_agreed(context, [] {});
    try {
      run_agreed(context, [&] {
        if (context.rank() > 0) throw UsageError("no such file");
      });
      FAIL();
    } catch (const AgreedError& e) {
      expect_facts(e.what(), {"rank 1, 2", "no such file"});
      EXPECT_EQ(e.exit_code(), ExitCode::usage);
      EXPECT_EQ(e.is_reporter(), context.rank() == 0);
    }
  });
}

}  // namespace
}  // namespace rondo::trainer_test
