// An evaluator that is asked to stop, within an evaluation and before the next one.
#include "rondo/train/evaluate_checkpoints.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>

#include "rondo/format/run_directory.h"
#include "rondo/train/estimator/train_and_evaluate.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::evaluate_checkpoints_test {
namespace {

using testing::Digits;

constexpr std::int64_t kBatches = 50;

// A data set that counts batches that were read.
class Counted final : public Dataset {
 public:
  std::int64_t size() const override { return digits_.size(); }
  Batch get(std::span<const std::int64_t> indices) const override {
    ++batches;
    return digits_.get(indices);
  }
  const DatasetInfo& info() const override { return digits_.info(); }

  mutable std::atomic<std::int64_t> batches = 0;

 private:
  Digits digits_{kBatches, 2};
};

// A run whose training continues: its lock is held.
struct HeldRun {
  HeldRun() {
    train_to(1);
    lock.emplace(directory.path());
  }
  void train_to(std::int64_t step) {
    trainer.fit(std::make_shared<Digits>(64), {.steps = step, .batch_size = 8});
    trainer.save(directory / "checkpoints", /*keep=*/3);
  }

  TemporaryDirectory directory;
  Context context = init({.init_method = "alone"});
  std::unique_ptr<Strategy> strategy = all_strategies().make("one_device", context);
  Trainer trainer{*strategy, testing::small_model(), testing::adamw(), cross_entropy};
  std::optional<RunLock> lock;
};

EvaluateCheckpointsOptions options_of(const HeldRun& run) {
  return {.run = run.directory.path(), .evaluate = {.batch_size = 1}};
}

bool has_rows(const HeldRun& run) {
  return std::filesystem::exists(run.directory / "metrics.evaluator.jsonl");
}

TEST(EvaluateCheckpoints, EndsWithinAnEvaluation) {
  HeldRun run;
  const Counted data;
  Trainer judge(*run.strategy, testing::small_model(), testing::adamw(), cross_entropy);
  EvaluateCheckpointsOptions options = options_of(run);
  options.stop_requested = [&] { return data.batches >= 5; };
  const CheckpointEvaluation last = evaluate_checkpoints(judge, data, options);
  EXPECT_EQ(last.step, -1);
  EXPECT_TRUE(last.figures.empty());
  EXPECT_EQ(data.batches, 5);
  EXPECT_FALSE(has_rows(run));
}

TEST(EvaluateCheckpoints, BeginsNoEvaluationOnceAskedToStop) {
  HeldRun run;
  const Counted data;
  Trainer judge(*run.strategy, testing::small_model(), testing::adamw(), cross_entropy);
  bool stops = false;
  EvaluateCheckpointsOptions options = options_of(run);
  options.stop_requested = [&] { return stops; };
  // A newer checkpoint exists when the first has been evaluated.
  options.told = [&](std::int64_t, const std::map<std::string, double>&) {
    run.train_to(2);
    stops = true;
  };
  const CheckpointEvaluation last = evaluate_checkpoints(judge, data, options);
  EXPECT_EQ(last.step, 1);
  EXPECT_FALSE(last.figures.empty());
  EXPECT_EQ(data.batches, kBatches);
}

// A scope in which this process has the role of an evaluator.
struct Evaluator {
  Evaluator() {
    setenv("TF_CONFIG", R"({"cluster":{"worker":["127.0.0.1:1"]},"task":{"type":"evaluator","index":0}})", 1);
  }
  ~Evaluator() { unsetenv("TF_CONFIG"); }
};

TEST(EvaluateCheckpoints, TrainAndEvaluateEndsWithinAnEvaluation) {
  HeldRun run;
  const auto data = std::make_shared<Counted>();
  const Evaluator role;
  const TrainAndEvaluateResult result =
      train_and_evaluate({.model = [] { return testing::small_model(); },
                          .compile = [](Trainer& trainer) { trainer.compile(testing::adamw()); }},
                         {.input = [](const InputContext&) { return std::make_shared<Digits>(64); },
                          .fit = {.stop_requested = [&] { return data->batches >= 5; }}},
                         {.input = [&](const InputContext&) { return data; }, .evaluate = {.batch_size = 1}},
                         {.directory = run.directory.path()});
  EXPECT_EQ(result.role, JobRole::evaluator);
  EXPECT_EQ(result.evaluated_step, -1);
  EXPECT_EQ(data->batches, 5);
  EXPECT_FALSE(has_rows(run));
}

}  // namespace
}  // namespace rondo::evaluate_checkpoints_test
