#include "rondo/train/estimator/train_and_evaluate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "rondo/base/error.h"
#include "rondo/train/agreement.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/rank_threads.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

// Ranks are threads here; tests/integration/train_and_evaluate_test.py tests roles of processes.
namespace rondo::train_and_evaluate_test {
namespace {

using testing::Digits;
using testing::expect_facts;
using testing::message_of;

Estimator small_estimator() {
  return {.model = [] { return testing::small_model(); },
          .compile = [](Trainer& trainer) { trainer.compile(testing::adamw()); }};
}

// Calls train(rank, config) on each rank, with a config in which the ranks rendezvous.
void on_ranks(int ranks, const std::filesystem::path& directory,
              const std::function<void(int rank, const RunConfig& config)>& train) {
  testing::set_up_mathematics();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tests::run_rank_threads(ranks, [&](int rank) {
    at::set_num_threads(1);
    RunConfig config;
    config.directory = directory;
    config.init.backend = "native";
    config.init.rank = rank;
    config.init.world_size = ranks;
    config.init.store = store;
    config.init.timeout = std::chrono::seconds(60);
    train(rank, config);
  });
}

TEST(TrainAndEvaluate, CallsAnInputOncePerWorker) {
  const TemporaryDirectory directory;
  std::atomic<int> calls = 0, pipelines = 0;
  on_ranks(2, directory.path(), [&](int rank, const RunConfig& given) {
    RunConfig config = given;
    config.checkpoint_every = 4;
    const auto result = train_and_evaluate(small_estimator(),
                                           {.input =
                                                [&](const InputContext& context) {
                                                  ++calls;
                                                  EXPECT_EQ(context.num_input_pipelines, 2);
                                                  EXPECT_EQ(context.input_pipeline_id, rank);
                                                  pipelines += 1 << context.input_pipeline_id;
                                                  return std::make_shared<Digits>(64);
                                                },
                                            .fit = {.steps = 8, .batch_size = 4}},
                                           {.input =
                                                [](const InputContext& context) {
                                                  EXPECT_EQ(context.num_input_pipelines, 1);
                                                  return std::make_shared<Digits>(32, 2);
                                                }},
                                           config);
    EXPECT_EQ(result.role, JobRole::trainer);
    EXPECT_EQ(result.fit.step, 8);
    EXPECT_EQ(result.evaluated_step, 8);
    EXPECT_EQ(result.figures, result.fit.validation);
  });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(pipelines, 3);
  EXPECT_TRUE(std::filesystem::exists(directory / "checkpoints/step-00000004"));
  EXPECT_TRUE(std::filesystem::exists(directory / "checkpoints/step-00000008"));
  EXPECT_FALSE(std::filesystem::exists(directory / "run.lock"));
}

TEST(TrainAndEvaluate, TakesOwnPipelinesWithEqualSampleCounts) {
  const TemporaryDirectory directory;
  const auto train = [](int rank, const RunConfig& config, std::int64_t samples_of_rank_1) {
    return train_and_evaluate(
        small_estimator(),
        {.input =
             [&](const InputContext& context) {
               return std::make_shared<Digits>(rank == 0 ? 64 : samples_of_rank_1,
                                               static_cast<std::uint64_t>(10 + context.input_pipeline_id));
             },
         .fit = {.epochs = 1, .batch_size = 8, .input_sharding = AutoShard::off}},
        {.input = [](const InputContext&) { return std::make_shared<Digits>(32, 2); }}, config);
  };
  on_ranks(2, directory / "refused", [&](int rank, const RunConfig& config) {
    expect_facts(message_of<AgreedError>([&] { train(rank, config, 48); }), {"64", "48", "rank 1"});
  });
  EXPECT_FALSE(std::filesystem::exists(directory / "refused"));
  on_ranks(2, directory / "run",
           [&](int rank, const RunConfig& config) { EXPECT_EQ(train(rank, config, 64).fit.step, 8); });
}

TEST(TrainAndEvaluate, RefusesWhatCannotBe) {
  const TemporaryDirectory directory;
  const InputFunction digits = [](const InputContext&) { return std::make_shared<Digits>(32); };
  const auto refusal = [&](const Estimator& estimator, const TrainSpec& train, const EvalSpec& eval,
                           const std::filesystem::path& run) {
    return message_of<UsageError>([&] {
      train_and_evaluate(estimator, train, eval, {.directory = run, .init = {.init_method = "alone"}});
    });
  };
  const auto run = directory / "run";
  expect_facts(refusal({}, {.input = digits}, {.input = digits}, run), {"Estimator::model"});
  expect_facts(refusal(small_estimator(), {}, {.input = digits}, run), {"TrainSpec::input"});
  expect_facts(refusal(small_estimator(), {.input = digits}, {}, run), {"EvalSpec::input"});
  expect_facts(refusal(small_estimator(), {.input = digits}, {.input = digits}, {}),
               {"RunConfig::directory"});
  expect_facts(
      refusal(small_estimator(), {.input = digits, .fit = {.validation = std::make_shared<Digits>(8)}},
              {.input = digits}, run),
      {"fit.validation", "EvalSpec"});
  expect_facts(refusal(small_estimator(), {.input = [](const InputContext&) { return nullptr; }},
                       {.input = digits}, run),
               {"TrainSpec::input"});
  EXPECT_FALSE(std::filesystem::exists(run));
}

}  // namespace
}  // namespace rondo::train_and_evaluate_test
