// Ranks that call fit with different arguments, or make different calls, get an error that names the
// difference.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <atomic>
#include <functional>

#include "rondo/base/error.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/terminate_on_nan.h"
#include "rondo/train/fit_arguments.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::fit_arguments_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::expect_facts;
using testing::message_of;
using testing::Rows;
using testing::run_ranks;
using testing::small_model;

struct Call {
  std::shared_ptr<const Dataset> data = std::make_shared<Digits>(48);
  FitOptions options = {.epochs = 2, .batch_size = 4, .validation = std::make_shared<Digits>(16, 2)};
  OptimizerOptions optimizer = {.name = "adamw", .learning_rate = 1e-2};
  std::vector<Metric> metrics = {loss_metric()};
};

struct Difference {
  std::vector<const char*> facts;  // contents of the message
  std::function<void(Call&)> make;
};

std::vector<Difference> differences() {
  return {
      {{"training samples", "48", "47"}, [](Call& call) { call.data = std::make_shared<Digits>(47); }},
      {{"hash of training samples"}, [](Call& call) { call.data = std::make_shared<Digits>(48, 9); }},
      {{"validation samples", "none"}, [](Call& call) { call.options.validation = nullptr; }},
      {{"validation samples", "16", "15"},
       [](Call& call) { call.options.validation = std::make_shared<Digits>(15, 2); }},
      {{"hash of validation samples"},
       [](Call& call) { call.options.validation = std::make_shared<Digits>(16, 3); }},
      {{"epochs", "2", "3"}, [](Call& call) { call.options.epochs = 3; }},
      {{"epochs", "2", "none"}, [](Call& call) { call.options.epochs = {}; }},
      {{"steps", "7"}, [](Call& call) { call.options.steps = 7; }},
      {{"steps_per_epoch", "5"}, [](Call& call) { call.options.steps_per_epoch = 5; }},
      {{"initial_epoch", "1"}, [](Call& call) { call.options.initial_epoch = 1; }},
      {{"initial_step", "3"}, [](Call& call) { call.options.initial_step = 3; }},
      {{"batch_size", "4", "5"}, [](Call& call) { call.options.batch_size = 5; }},
      {{"accumulate", "2"}, [](Call& call) { call.options.accumulate = 2; }},
      {{"shuffle", "false"}, [](Call& call) { call.options.shuffle = false; }},
      {{"seed", "8"}, [](Call& call) { call.options.seed = 8; }},
      {{"input_sharding"}, [](Call& call) { call.options.input_sharding = AutoShard::off; }},
      {{"schedule"}, [](Call& call) { call.options.schedule = make_schedule({.learning_rate = 0.3}); }},
      {{"schedule", "cosine"}, [](Call& call) { call.options.named_schedule = {.kind = "cosine"}; }},
      {{"clip_norm", "0.5"}, [](Call& call) { call.options.clip_norm = 0.5; }},
      {{"validate_every", "3"}, [](Call& call) { call.options.validate_every = 3; }},
      {{"validation_batch_size", "6"}, [](Call& call) { call.options.validation_batch_size = 6; }},
      {{"validation_batches", "1"}, [](Call& call) { call.options.validation_batches = 1; }},
      {{"callbacks", "terminate_on_nan"},
       [](Call& call) { call.options.callbacks = {std::make_shared<TerminateOnNan>()}; }},
      {{"stop_requested", "true"}, [](Call& call) { call.options.stop_requested = [] { return false; }; }},
      {{"learning rate", "0.01", "0.02"}, [](Call& call) { call.optimizer.learning_rate = 2e-2; }},
      {{"optimizer", "SGD"}, [](Call& call) { call.optimizer.name = "sgd"; }},
      {{"metrics", "other"}, [](Call& call) { call.metrics.front().name = "other"; }},
  };
}

TEST(FitArguments, ThatDifferByRankAreNamed) {
  const std::vector<Difference> all = differences();
  for (const char* strategy_name : {"ddp", "zero3"}) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(std::string(strategy_name) + ": " + all[i].facts.front());
      std::atomic<int> told{0};
      std::atomic<int> reporters{0};
      run_ranks(3, "native", [&](Context& context) {
        Call call;
        if (context.rank() == 2) all[i].make(call);
        const auto strategy = all_strategies().make(strategy_name, context);
        Trainer trainer(*strategy, small_model());
        trainer.compile(call.optimizer, cross_entropy, call.metrics);
        try {
          trainer.fit(call.data, call.options);
          ADD_FAILURE();
        } catch (const AgreedError& error) {
          std::vector<const char*> facts = all[i].facts;
          facts.insert(facts.end(), {"Trainer::fit", "ranks 0, 1", "rank 2"});
          expect_facts(error.what(), facts);
          EXPECT_EQ(error.exit_code(), ExitCode::usage);
          if (error.is_reporter()) ++reporters;
          ++told;
        }
      });
      EXPECT_EQ(told, 3);
      EXPECT_EQ(reporters, 1);
    }
  }
}

TEST(FitArguments, ThatAreNullAreNamed) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = all_strategies().make("ddp", context);
    Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
    trainer.fit(std::make_shared<Digits>(16), {.steps = 1, .batch_size = 4});
    expect_facts(message_of<AgreedError>([&] {
                   trainer.fit(context.rank() == 0 ? std::make_shared<Digits>(16) : nullptr,
                               {.steps = 2, .batch_size = 4});
                 }),
                 {"rank 1", "data", "null"});
    expect_facts(message_of<AgreedError>([&] {
                   trainer.fit(std::make_shared<Digits>(16),
                               {.steps = 2, .batch_size = 4, .callbacks = {nullptr}});
                 }),
                 {"callback 0", "null"});
  });
}

// A user's data set that draws its samples.
class Drawn final : public Rows {
 public:
  Drawn() : Rows(torch::zeros({24, 8}), torch::zeros({24}, torch::kLong), 8) {}
  rondo::Batch get(std::span<const std::int64_t> indices) const override {
    rondo::Batch batch = Rows::get(indices);
    batch.inputs = {torch::randn_like(batch.inputs.front())};
    return batch;
  }
};

// A data set that draws from a generator of its own, so that ranks draw different samples.
class DrawnByRank final : public Rows {
 public:
  explicit DrawnByRank(int rank)
      : Rows(torch::zeros({24, 8}), torch::zeros({24}, torch::kLong), 8),
        generator_(at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank + 1))) {}
  rondo::Batch get(std::span<const std::int64_t> indices) const override {
    rondo::Batch batch = Rows::get(indices);
    batch.inputs = {torch::randn(batch.inputs.front().sizes(), generator_)};
    return batch;
  }

 private:
  mutable at::Generator generator_;
};

TEST(FitArguments, MayDifferWhereTheyHaveTo) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = all_strategies().make("ddp", context);
    const auto fit = [&](const std::shared_ptr<const Dataset>& data, FitOptions options) {
      Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
      options.steps = 2;
      options.batch_size = 4;
      return trainer.fit(data, options).step;
    };
    EXPECT_EQ(fit(std::make_shared<Drawn>(), {}), 2);
    EXPECT_EQ(fit(std::make_shared<DrawnByRank>(context.rank()), {}), 2);
    // Each rank reads a pipeline of its own.
    const auto seed = static_cast<std::uint64_t>(1 + context.rank());
    EXPECT_EQ(fit(std::make_shared<Digits>(24, seed), {.input_sharding = AutoShard::off}), 2);
    EXPECT_EQ(fit(std::make_shared<Digits>(24), {.loader_threads = 1 + context.rank()}), 2);
  });
}

TEST(FitArguments, LeaveTheRandomGeneratorsAsTheyWere) {
  run_ranks(1, "native", [](Context& context) {
    const auto strategy = all_strategies().make("one_device", context);
    torch::manual_seed(4);
    const at::Tensor before = torch::rand({1});
    torch::manual_seed(4);
    fit_arguments(Drawn(), {}, *strategy, c10::kCPU);
    EXPECT_TRUE(torch::rand({1}).equal(before));
  });
}

// A collective call with its name.
struct Named {
  const char* name;
  std::function<void(Trainer&, const std::filesystem::path&)> call;
};

std::vector<Named> calls() {
  return {
      {"Trainer::fit",
       [](Trainer& trainer, const auto&) {
         trainer.fit(std::make_shared<Digits>(16), {.steps = 9, .batch_size = 4});
       }},
      {"train_step",
       [](Trainer& trainer, const auto&) {
         trainer.train_on_batch(Digits(4).get(std::array<std::int64_t, 2>{0, 1}));
       }},
      {"Trainer::evaluate", [](Trainer& trainer, const auto&) { trainer.evaluate(Digits(8)); }},
      {"Trainer::predict", [](Trainer& trainer, const auto&) { trainer.predict(Digits(8)); }},
      {"Trainer::save", [](Trainer& trainer, const auto& path) { trainer.save(path / "new", 1); }},
      {"Trainer::restore", [](Trainer& trainer, const auto& path) { trainer.restore(path / "saved"); }},
      {"Trainer::load_weights",
       [](Trainer& trainer, const auto& path) { trainer.load_weights(path / "saved"); }},
  };
}

TEST(CollectiveCalls, ThatDifferByRankAreNamed) {
  const std::vector<Named> all = calls();
  for (const char* backend : {"native", "hierarchical(native, gloo)"}) {
    const bool apart = std::string(backend) != "native";
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        SCOPED_TRACE(std::string(backend) + ": " + all[i].name + " and " + all[j].name);
        const TemporaryDirectory directory;
        std::atomic<int> told{0};
        run_ranks(
            2, backend,
            [&](Context& context) {
              const auto strategy = all_strategies().make("ddp", context);
              Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
              trainer.save(directory / "saved", 1);
              try {
                (context.rank() == 0 ? all[i] : all[j]).call(trainer, directory.path());
                ADD_FAILURE() << "rank " << context.rank();
              } catch (const std::exception& error) {
                expect_facts(error.what(), {all[i].name, all[j].name, "rank 0", "rank 1"});
                ++told;
              }
            },
            std::chrono::seconds(60), apart ? std::vector<int>{0, 1} : std::vector<int>{});
        EXPECT_EQ(told, 2);
      }
    }
  }
}

}  // namespace
}  // namespace rondo::fit_arguments_test
