// A training that stops anywhere in an epoch continues in any other world and with any other batch size, and
// trains on every sample of the epoch exactly once.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "rondo/base/random.h"
#include "rondo/data/data_files.h"
#include "rondo/strategy/input_division.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::testing::world_resume_test {
namespace {

constexpr std::int64_t kSamples = 61;

// A data set that records which samples were read in the first epoch.
class WatchedDigits : public Rows {
 public:
  WatchedDigits() : WatchedDigits(Digits(kSamples)) {}
  rondo::Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    const std::lock_guard lock(mutex_);
    if (epoch == 0) read_.insert(read_.end(), indices.begin(), indices.end());
    return get(indices);
  }
  std::vector<std::int64_t> take_read() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::int64_t> sorted = std::exchange(read_, {});
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

 private:
  explicit WatchedDigits(const Digits& digits) : WatchedDigits(all_of(digits)) {}
  explicit WatchedDigits(const rondo::Batch& batch) : Rows(batch.input(), batch.target(), 8) {}
  static rondo::Batch all_of(const Digits& digits) {
    std::vector<std::int64_t> all(kSamples);
    std::iota(all.begin(), all.end(), 0);
    return digits.get(all);
  }
  mutable std::mutex mutex_;  // protects read_
  mutable std::vector<std::int64_t> read_;
};

// The same data in files.
class FiledDigits final : public WatchedDigits, public DataFiles {
 public:
  std::vector<std::int64_t> file_starts() const override { return {0, 9, 10, 31, kSamples}; }
};

void expect_every_sample_once(const std::shared_ptr<const WatchedDigits>& data,
                              const std::vector<AutoShard>& shardings) {
  std::vector<std::int64_t> every(kSamples);
  std::iota(every.begin(), every.end(), 0);
  RandomStream random(23);
  const auto draw = [&](std::int64_t most) {
    return static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(most)));
  };
  for (int position = 0; position < 50; ++position) {
    const TemporaryDirectory directory;
    // Three successive worlds, so that a rest may be divided twice.
    for (int world = 0; world < 3; ++world) {
      const int ranks = static_cast<int>(draw(3));
      FitOptions options{.batch_size = draw(6)};
      options.input_sharding = shardings[random.below(shardings.size())];
      options.loader_threads = 0;
      if (world == 2) {
        options.epochs = 1;
      } else {
        options.steps =
            (world + 1) * draw(std::max<std::int64_t>(1, kSamples / 4 / (options.batch_size * ranks)));
      }
      run_ranks(ranks, "native", [&](Context& context) {
        const auto strategy = strategy_for(context);
        Trainer trainer(*strategy, small_model());
        trainer.compile(adamw());
        if (world > 0) trainer.restore(directory.path());
        trainer.fit(data, options);
        if (world < 2) trainer.save(directory.path(), 1);
      });
    }
    EXPECT_EQ(data->take_read(), every) << "position " << position;
  }
}

TEST(WorldResume, EverySampleOnceAfterFiftyRandomPositions) {
  expect_every_sample_once(std::make_shared<WatchedDigits>(), {AutoShard::automatic});
}

TEST(WorldResume, SamplesOnceAcrossReadersByFileAndSample) {
  expect_every_sample_once(std::make_shared<FiledDigits>(), {AutoShard::file});
  expect_every_sample_once(std::make_shared<FiledDigits>(), {AutoShard::file, AutoShard::data});
}

TEST(InputDivision, DividesFilesIfRequestedOrFree) {
  const FiledDigits uneven;
  const auto says = [](const rondo::Dataset& data, AutoShard shard, int readers) {
    const InputDivision division = divide_input(data, shard, readers);
    return std::tuple(division.readers, division.by_file, division.most_samples);
  };
  EXPECT_EQ(says(uneven, AutoShard::file, 2), std::tuple(2, true, 31));  // files of 9 and 21, of 1 and 30
  EXPECT_EQ(says(uneven, AutoShard::file, 4), std::tuple(4, true, 30));
  EXPECT_EQ(says(uneven, AutoShard::automatic, 2), std::tuple(2, true, 31));
  EXPECT_EQ(says(uneven, AutoShard::automatic, 4), std::tuple(4, false, 16)) << "one would read 30 of 61";
  EXPECT_EQ(says(uneven, AutoShard::automatic, 5), std::tuple(5, false, 13)) << "four files";
  EXPECT_EQ(says(uneven, AutoShard::data, 2), std::tuple(2, false, 31));
  EXPECT_EQ(says(uneven, AutoShard::off, 2), std::tuple(1, false, 61));
  expect_facts(message_of<UsageError>([&] { divide_input(uneven, AutoShard::file, 5); }),
               {"5 processes", "4 of"});
  const WatchedDigits in_memory;
  EXPECT_EQ(says(in_memory, AutoShard::automatic, 2), std::tuple(2, false, 31));
  expect_facts(message_of<UsageError>([&] { divide_input(in_memory, AutoShard::file, 2); }), {"61 samples"});
}

}  // namespace
}  // namespace rondo::testing::world_resume_test
