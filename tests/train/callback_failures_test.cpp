// Exceptions of callbacks around a save, and callbacks' files that cannot be written.

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/train/callbacks/backup_and_restore.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/weight_average.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::callback_failures_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::run_ranks;
using testing::small_model;
using testing::strategy_for;

std::shared_ptr<Digits> digits(std::int64_t samples) { return std::make_shared<Digits>(samples, 1); }

class Failing final : public Callback {
 public:
  Failing(std::string moment, int rank) : moment_(std::move(moment)), rank_(rank) {}
  std::string name() const override { return "failing"; }
  void before_fit(Trainer& t) override {
    trainer_ = &t;
    fail("before_fit");
  }
  void before_save(Trainer&) override { fail("before_save"); }
  void after_save(Trainer&, const std::filesystem::path&) override { fail("after_save"); }
  void on_step_complete(Trainer&, const StepRecord& record) override {
    if (record.step == 3) fail("step_complete");
  }
  nlohmann::json state() const override {
    fail("state");
    return {};
  }

 private:
  void fail(const char* moment) const {
    if (moment_ == moment && trainer_->strategy().context().rank() == rank_)
      throw Error(str("no room at ", moment));
  }
  std::string moment_;
  int rank_;
  Trainer* trainer_ = nullptr;
};

// A checkpoint that cannot be written is a warning, but exceptions of other callbacks meanwhile are errors.
TEST(CallbackFailures, AroundASaveEndAllWithTheirMessage) {
  for (const int ranks : {1, 3}) {
    for (const bool in_parts : {false, true}) {
      for (const char* moment : {"before_fit", "before_save", "after_save", "state", "step_complete"}) {
        SCOPED_TRACE(str(ranks, " ranks, ", moment, in_parts ? ", in parts" : ""));
        const TemporaryDirectory directory;
        const int failing = ranks == 1 ? 0 : 1;
        std::atomic<int> told{0};
        run_ranks(ranks, "native", [&](Context& context) {
          auto strategy = all_strategies().make(ranks == 1 ? "one_device" : "zero3", context);
          Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
          try {
            trainer.fit(
                digits(48),
                {.epochs = 2,
                 .batch_size = 4,
                 .callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
                                   .directory = directory / "saved", .every_steps = 2, .in_parts = in_parts}),
                               std::make_shared<Failing>(moment, failing)}});
            ADD_FAILURE();
          } catch (const Error& error) {
            EXPECT_EQ(error.what(), str(ranks == 1 ? "" : "rank 1: failing: ", "no room at ", moment));
            ++told;
          }
        });
        EXPECT_EQ(told, ranks);
      }
    }
  }
}

// A callback that creates files in place of the checkpoints of step 2.
class InTheWay final : public Callback {
 public:
  explicit InTheWay(std::vector<std::filesystem::path> folders) : folders_(std::move(folders)) {}
  std::string name() const override { return "in_the_way"; }
  void on_step_end(Trainer& trainer, const StepRecord& record) override {
    if (record.step != 1 || trainer.strategy().context().rank() != 0) return;
    for (const std::filesystem::path& folder : folders_) {
      std::filesystem::create_directories(folder);
      std::ofstream(folder / checkpoint_name(2)) << "in the way";
    }
  }

 private:
  std::vector<std::filesystem::path> folders_;
};

TEST(CallbackFailures, TrainingContinuesWithoutWritableBackupOrAverage) {
  for (const int ranks : {1, 2}) {
    const TemporaryDirectory directory;
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = strategy_for(context);
      Trainer trainer(*strategy, small_model(), adamw(), cross_entropy);
      WeightAverage::Options average;
      average.directory = directory / "average";
      const FitResult result = trainer.fit(
          digits(32 * ranks), {.steps = 4,
                               .batch_size = 4,
                               .callbacks = {std::make_shared<InTheWay>(std::vector<std::filesystem::path>{
                                                 directory / "average", directory / "backup"}),
                                             std::make_shared<WeightAverage>(average),
                                             std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
                                                 .directory = directory / "saved", .every_steps = 2}),
                                             std::make_shared<BackupAndRestore>(BackupAndRestore::Options{
                                                 .directory = directory / "backup", .every_steps = 2})}});
      EXPECT_EQ(result.step, 4);
    });
    for (const char* folder : {"average", "saved"})
      EXPECT_TRUE(std::filesystem::is_directory(directory / folder / checkpoint_name(4))) << folder;
    EXPECT_TRUE(std::filesystem::is_directory(directory / "saved" / checkpoint_name(2)));
  }
}

}  // namespace
}  // namespace rondo::callback_failures_test
