#include "rondo/data/training_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "rondo/base/error.h"

namespace rondo::training_sampler_test {
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

TEST(TrainingSampler, GlobalBatchesDoNotDependOnReaders) {
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

TEST(TrainingSampler, OtherReadersFinishAStartedEpoch) {
  // 4 readers have done 3 batches of 5 samples each, out of 100 samples: 3, 5 or 70 readers share the rest.
  const std::vector<std::int64_t> order = epoch_of(100, 0, 1, 2);
  const std::int64_t done = 4 * 5 * 3;
  for (const int readers : {3, 5, 70}) {
    std::vector<std::int64_t> seen(order.begin(), order.begin() + done);
    for (int reader = 0; reader < readers; ++reader) {
      TrainingSampler sampler(
          100, {.index = reader, .count = readers, .seed = 3, .done = {{.samples = done}}, .done_epoch = 2});
      EXPECT_EQ(sampler.size(), 100 / readers + (reader < 100 % readers ? 1 : 0)) << "in epoch 0";
      sampler.set_epoch(2);
      const std::vector<std::int64_t> mine = sampler.indices();
      EXPECT_EQ(static_cast<std::int64_t>(mine.size()), sampler.size());
      EXPECT_LE(mine.size(), static_cast<std::size_t>(5 * sampler.batches_per_epoch(5)));
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_EQ(mine[i],
                  order[static_cast<std::size_t>(done + reader) + i * static_cast<std::size_t>(readers)]);
      seen.insert(seen.end(), mine.begin(), mine.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::int64_t> all(100);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all) << readers;
  }
  EXPECT_THROW(TrainingSampler(5, {.done = {{.samples = 6}}}), UsageError);
}

TEST(TrainingSampler, RejectsWhatCannotBe) {
  EXPECT_THROW(TrainingSampler(0, {}), UsageError);
  EXPECT_THROW(TrainingSampler(5, {.index = 2, .count = 2}), UsageError);
}

constexpr std::int64_t kFileSamples = 61;
const std::vector<std::int64_t> kFiles = {0, 5, 6, 20, 21, 22, 40, kFileSamples};  // seven files

int file_of(std::int64_t sample) {
  return static_cast<int>(std::upper_bound(kFiles.begin(), kFiles.end(), sample) - kFiles.begin()) - 1;
}

TEST(TrainingSampler, ByFileEverySampleIsReadOnce) {
  for (const bool shuffle : {false, true}) {
    for (int readers = 1; readers <= 7; ++readers) {
      std::vector<std::int64_t> seen;
      std::int64_t most = 0;
      for (int reader = 0; reader < readers; ++reader) {
        TrainingSampler sampler(kFileSamples, {.index = reader,
                                               .count = readers,
                                               .shuffle = shuffle,
                                               .seed = 4,
                                               .files = kFiles,
                                               .by_file = true});
        sampler.set_epoch(1);
        const std::vector<std::int64_t> mine = sampler.indices();
        EXPECT_EQ(std::ssize(mine), sampler.size());
        for (const std::int64_t sample : mine) EXPECT_EQ(file_of(sample) % readers, reader);
        most = std::max(most, sampler.size());
        EXPECT_EQ(sampler.left(), kFileSamples);
        seen.insert(seen.end(), mine.begin(), mine.end());
        EXPECT_GE(sampler.batches_per_epoch(4) * 4, sampler.size());
      }
      TrainingSampler any(kFileSamples, {.count = readers, .files = kFiles, .by_file = true});
      EXPECT_EQ(any.batches_per_epoch(4), (most + 3) / 4);
      std::sort(seen.begin(), seen.end());
      std::vector<std::int64_t> all(kFileSamples);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all) << readers << " readers";
    }
  }
  EXPECT_THROW(TrainingSampler(kFileSamples, {.count = 8, .files = kFiles, .by_file = true}), UsageError);
  EXPECT_THROW(TrainingSampler(kFileSamples, {.count = 2, .by_file = true}), UsageError);
}

// Readers by file and by sample alternate within one epoch, like a training that is resumed with other world
// sizes.
TEST(TrainingSampler, OtherReadersFinishAnEpochByFile) {
  const std::vector<TrainingSampler::Done> turns = {{.samples = 4},
                                                    {.readers = 3, .samples = 5, .by_file = true},
                                                    {.readers = 2, .samples = 6},
                                                    {.readers = 2, .samples = 7, .by_file = true},
                                                    {.readers = 4, .samples = kFileSamples}};
  std::vector<std::int64_t> seen;
  std::vector<TrainingSampler::Done> done;
  for (const TrainingSampler::Done& turn : turns) {
    std::int64_t left = 0;
    const std::size_t before = seen.size();
    for (int reader = 0; reader < turn.readers; ++reader) {
      TrainingSampler sampler(kFileSamples, {.index = reader,
                                             .count = turn.readers,
                                             .seed = 9,
                                             .files = kFiles,
                                             .by_file = turn.by_file,
                                             .done = done,
                                             .done_epoch = 3});
      EXPECT_EQ(sampler.left(), kFileSamples) << "of another epoch";
      sampler.set_epoch(3);
      std::vector<std::int64_t> mine = sampler.indices();
      EXPECT_EQ(std::ssize(mine), sampler.size());
      left += sampler.size();
      EXPECT_EQ(sampler.left(), kFileSamples - static_cast<std::int64_t>(before));
      mine.resize(std::min<std::size_t>(mine.size(), static_cast<std::size_t>(turn.samples)));
      seen.insert(seen.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(left, kFileSamples - static_cast<std::int64_t>(before));
    done.push_back(turn);
  }
  std::sort(seen.begin(), seen.end());
  std::vector<std::int64_t> all(kFileSamples);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
}

}  // namespace
}  // namespace rondo::training_sampler_test
