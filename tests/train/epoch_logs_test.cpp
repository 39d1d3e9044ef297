// Tests of the epoch logs, CSV and JSON, over resumed runs.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>

#include "rondo/backend/collectives.h"
#include "rondo/base/text.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/log_targets/csv/csv_log.h"
#include "rondo/train/log_targets/jsonl/json_log.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::epoch_logs_test {
namespace {

using testing::adamw;
using testing::digits;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(EpochLogs, HaveOneLinePerEpochAfterResuming) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    const auto train = [&](std::int64_t epochs, bool resumed) {
      Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
      if (resumed) trainer.restore(directory / "checkpoints");
      std::vector<std::shared_ptr<Callback>> callbacks{std::make_shared<CsvLog>(directory / "log.csv"),
                                                       std::make_shared<JsonLog>(directory / "log.jsonl")};
      if (epochs == 2)
        callbacks.push_back(std::make_shared<ModelCheckpoint>(
            ModelCheckpoint::Options{.directory = directory / "checkpoints"}));
      return trainer.fit(
          digits(24),
          {.epochs = epochs, .batch_size = 4, .validation = digits(8, 2), .callbacks = callbacks});
    };
    train(2, false);
    train(4, true);  // simulates a death: its checkpoint is that of two epochs
    const FitResult result = train(3, true);
    ASSERT_EQ(result.history.size(), 1U);
    EXPECT_EQ(result.history[0].epoch, 2);
    EXPECT_EQ(result.history[0].samples, 24);
    if (context.rank() != 0) return;
    const auto rows = lines_of(directory / "log.csv");
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0], "epoch,step,loss,learning_rate,samples,elapsed_s,validation_loss");
    EXPECT_TRUE(rows[1].starts_with("0,3,")) << rows[1];
    EXPECT_TRUE(rows[3].starts_with("2,9,")) << rows[3];
    const auto objects = lines_of(directory / "log.jsonl");
    ASSERT_EQ(objects.size(), 3U);
    const auto last = nlohmann::json::parse(objects[2]);
    EXPECT_EQ(last["step"], 9);
    EXPECT_EQ(last["loss"].get<double>(), result.history[0].loss);
    EXPECT_EQ(last["validation"]["loss"].get<double>(), result.validation.at("loss"));
  });
}

TEST(EpochLogs, IncludeAnEpochResumedInItsMiddle) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    // Three steps in a pass; also virtual epochs of four.
    for (const std::int64_t steps_per_epoch : {0, 4}) {
      const std::filesystem::path checkpoints = directory / str("checkpoints-", steps_per_epoch);
      const auto fit = [&](Trainer& trainer, std::int64_t steps, const std::string& log) {
        const std::string name = str(log, "-", steps_per_epoch, ".csv");
        return trainer.fit(digits(24),
                           {.steps = steps,
                            .steps_per_epoch = steps_per_epoch,
                            .batch_size = 4,
                            .callbacks = {std::make_shared<CsvLog>(directory / name),
                                          std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
                                              .directory = checkpoints / log, .every_steps = 5})}});
      };
      const auto trained = [&](std::int64_t steps, const std::string& log) {
        Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
        if (std::filesystem::exists(checkpoints / log)) trainer.restore(checkpoints / log);
        barrier(context.world());
        return fit(trainer, steps, log);
      };
      const FitResult whole = trained(12, "whole");
      trained(5, "resumed");
      const FitResult rest = trained(12, "resumed");
      // A second fit continues the epoch too.
      Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
      fit(trainer, 5, "twice");
      fit(trainer, 12, "twice");
      ASSERT_FALSE(rest.history.empty());
      const EpochRecord& first = rest.history.front();
      const EpochRecord& expected = whole.history[whole.history.size() - rest.history.size()];
      EXPECT_EQ(first.epoch, 1);
      EXPECT_EQ(first.loss, expected.loss);
      EXPECT_EQ(first.samples, expected.samples);
      if (context.rank() != 0) continue;
      const auto without_time = [&](const std::string& log) {
        std::vector<std::string> lines = lines_of(directory / str(log, "-", steps_per_epoch, ".csv"));
        for (std::string& line : lines) line.erase(line.rfind(','));
        return lines;
      };
      EXPECT_EQ(without_time("resumed"), without_time("whole"));
      EXPECT_EQ(without_time("twice"), without_time("whole"));
    }
  });
}

}  // namespace
}  // namespace rondo::epoch_logs_test
