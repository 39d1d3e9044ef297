#include "rondo/train/training_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "rondo/base/error.h"

namespace rondo {
namespace {

std::vector<std::int64_t> epoch_of(std::int64_t samples, int index, int count, std::int64_t epoch) {
  TrainingSampler sampler(samples, {.index = index, .count = count, .seed = 3});
  sampler.set_epoch(epoch);
  const std::vector<std::int64_t> indices = sampler.indices();
  EXPECT_EQ(static_cast<std::int64_t>(indices.size()), sampler.size());
  return indices;
}

TEST(TrainingSampler, EverySampleOnceForAnyNumberOfReaders) {
  for (const std::int64_t samples : {7, 12, 100}) {
    for (int readers = 1; readers <= 5; ++readers) {
      std::vector<std::int64_t> seen;
      for (int reader = 0; reader < readers; ++reader) {
        const auto mine = epoch_of(samples, reader, readers, 2);
        seen.insert(seen.end(), mine.begin(), mine.end());
      }
      std::sort(seen.begin(), seen.end());
      std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all) << samples << " samples, " << readers << " readers";
    }
  }
}

TEST(TrainingSampler, GlobalBatchesDoNotDependOnTheNumberOfReaders) {
  const auto alone = epoch_of(23, 0, 1, 5);
  const auto first = epoch_of(23, 0, 2, 5);
  const auto second = epoch_of(23, 1, 2, 5);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(alone[i], (i % 2 == 0 ? first : second)[i / 2]);
}

TEST(TrainingSampler, EpochsDifferAndRepeat) {
  EXPECT_NE(epoch_of(50, 0, 1, 0), epoch_of(50, 0, 1, 1));
  EXPECT_EQ(epoch_of(50, 0, 1, 1), epoch_of(50, 0, 1, 1));
}

TEST(TrainingSampler, CountsBatchesOfTheLongestReader) {
  EXPECT_EQ(TrainingSampler(9, {.index = 1, .count = 2}).batches_per_epoch(4), 2);  // 5 and 4 samples
  EXPECT_EQ(TrainingSampler(8, {.index = 1, .count = 2}).batches_per_epoch(4), 1);
}

TEST(TrainingSampler, RejectsWhatCannotBe) {
  EXPECT_THROW(TrainingSampler(0, {}), UsageError);
  EXPECT_THROW(TrainingSampler(5, {.index = 2, .count = 2}), UsageError);
}

}  // namespace
}  // namespace rondo
