#include "rondo/data/loader.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/data/mixture.h"
#include "rondo/data/subset.h"
#include "rondo/data/training_sampler.h"

namespace rondo::loader_test {
namespace {

// A data set whose samples are their own numbers; reading may fail, and reads are counted.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t fails_at = -1) : size_(size), fails_at_(fails_at) {}
  std::int64_t size() const override { return size_; }
  const DatasetInfo& info() const override { return info_; }
  Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size_);
    // Uneven work, so that batches finish out of order.
    for (std::int64_t i = 0; i < indices.front() % 7; ++i) std::this_thread::yield();
    ++reads;
    at::Tensor input = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] == fails_at_) throw DataError("sample is damaged");
      input[static_cast<std::int64_t>(i)] = indices[i];
    }
    return {{input}, {input}, static_cast<std::int64_t>(indices.size())};
  }
  mutable std::atomic<int> reads = 0;

 private:
  std::int64_t size_;
  std::int64_t fails_at_;
  DatasetInfo info_;
};

std::vector<std::vector<std::int64_t>> drain(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  while (const std::optional<Batch> batch = loader.next()) {
    const auto* values = batch->input().const_data_ptr<std::int64_t>();
    EXPECT_EQ(batch->samples, batch->input().numel());
    batches.emplace_back(values, values + batch->input().numel());
  }
  return batches;
}

std::shared_ptr<Sampler> shuffled(std::int64_t size) {
  return std::make_shared<DistributedSampler>(size, DistributedSamplerOptions{.seed = 9});
}

TEST(Loader, RefusesWhatIsNull) {
  const auto data = std::make_shared<Numbers>(4);
  const auto sampler = std::make_shared<TrainingSampler>(4, TrainingSampler::Options{});
  EXPECT_THROW(Loader(nullptr, sampler, {}), UsageError);
  EXPECT_THROW(Loader(data, nullptr, {}), UsageError);
  EXPECT_THROW(Subset(nullptr, {0}), UsageError);
  EXPECT_THROW(Mixture({data, nullptr}, {}, 0), UsageError);
}

TEST(Loader, TheOrderIsTheSamplersWhateverTheThreads) {
  const auto data = std::make_shared<Numbers>(103);
  for (const std::int64_t epoch : {0, 4}) {
    const auto sampler = shuffled(103);
    sampler->set_epoch(epoch);
    const auto order = sampler->indices();
    for (const int threads : {0, 1, 4}) {
      for (const int prefetch : {1, 3}) {
        Loader loader(data, shuffled(103), {.batch_size = 10, .threads = threads, .prefetch = prefetch});
        EXPECT_EQ(loader.batches_per_epoch(), 11);
        loader.seek({.epoch = epoch});
        std::vector<std::int64_t> seen;
        for (const auto& batch : drain(loader)) seen.insert(seen.end(), batch.begin(), batch.end());
        EXPECT_EQ(seen, order);
        EXPECT_EQ(loader.position(), (LoaderPosition{epoch, 11}));
        EXPECT_FALSE(loader.next().has_value());
      }
    }
  }
}

TEST(Loader, ContinuesWithTheVeryNextBatch) {
  const auto data = std::make_shared<Numbers>(57);
  Loader whole(data, shuffled(57), {.batch_size = 5});
  whole.seek({.epoch = 2});
  const auto batches = drain(whole);
  for (std::int64_t start = 0; start <= 12; ++start) {
    Loader resumed(data, shuffled(57), {.batch_size = 5, .threads = 2});
    resumed.seek({.epoch = 2, .batch = start});
    EXPECT_EQ(drain(resumed), std::vector(batches.begin() + start, batches.end())) << start;
  }
}

TEST(Loader, DropsOrKeepsTheIncompleteBatch) {
  const auto data = std::make_shared<Numbers>(10);
  Loader keeping(data, std::make_shared<ExactSampler>(10, 0, 1), {.batch_size = 4});
  EXPECT_EQ(drain(keeping).back(), (std::vector<std::int64_t>{8, 9}));
  Loader dropping(data, std::make_shared<ExactSampler>(10, 0, 1), {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(dropping.batches_per_epoch(), 2);
  EXPECT_EQ(drain(dropping).size(), 2U);
  Loader none(data, std::make_shared<ExactSampler>(1, 1, 2), {.batch_size = 4});
  EXPECT_FALSE(none.next().has_value());
}

TEST(Loader, RethrowsWhereTheDataSetFailed) {
  for (const int threads : {0, 1, 3}) {
    const auto data = std::make_shared<Numbers>(40, 25);
    Loader loader(data, std::make_shared<ExactSampler>(40, 0, 1), {.batch_size = 4, .threads = threads});
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(loader.next().has_value());
    EXPECT_THROW(loader.next(), DataError);
    EXPECT_THROW(loader.next(), DataError) << "asking again must not hang";
    EXPECT_EQ(loader.position().batch, 6);
    loader.seek({.epoch = 0, .batch = 7});
    EXPECT_EQ(drain(loader).size(), 3U);
  }
}

TEST(Loader, ReadsAheadNoFurtherThanAsked) {
  const auto data = std::make_shared<Numbers>(100);
  Loader loader(data, std::make_shared<ExactSampler>(100, 0, 1),
                {.batch_size = 1, .threads = 4, .prefetch = 3});
  for (int i = 0; i < 10; ++i) {
    loader.next();
    EXPECT_LE(data->reads.load(), i + 1 + 3);
  }
}

// A data set that blocks every read until it is released.
class Gate final : public Dataset {
 public:
  std::int64_t size() const override { return 100; }
  const DatasetInfo& info() const override { return info_; }
  Batch get(std::span<const std::int64_t> indices) const override {
    std::unique_lock lock(mutex_);
    entered_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return {{at::empty({0})}, {at::empty({0})}, static_cast<std::int64_t>(indices.size())};
  }
  void wait_until_entered() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_; });
  }
  void open() const {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;  // protects the two flags
  mutable std::condition_variable changed_;
  mutable bool entered_ = false;
  mutable bool open_ = false;
  DatasetInfo info_;
};

TEST(Loader, StopsWithReadsUnderWay) {
  const auto gate = std::make_shared<Gate>();
  {
    Loader loader(gate, std::make_shared<ExactSampler>(100, 0, 1),
                  {.batch_size = 1, .threads = 2, .prefetch = 2});
    std::thread consumer([&] { loader.next(); });
    gate->wait_until_entered();
    gate->open();
    consumer.join();
  }  // joins the threads although most of the epoch is unread
  for (int i = 0; i < 50; ++i) {
    Loader loader(std::make_shared<Numbers>(100), shuffled(100),
                  {.batch_size = 3, .threads = 3, .prefetch = 4});
    for (int j = 0; j < i % 4; ++j) loader.next();
  }
}

TEST(Loader, RefusesWhatCannotBe) {
  const auto data = std::make_shared<Numbers>(10);
  const auto sampler = std::make_shared<ExactSampler>(10, 0, 2);
  EXPECT_THROW(Loader(data, sampler, {.batch_size = 0}), UsageError);
  EXPECT_THROW(Loader(data, sampler, {.batch_size = 1, .threads = -1}), UsageError);
  EXPECT_THROW(Loader(data, sampler, {.batch_size = 1, .prefetch = 0}), UsageError);
  EXPECT_THROW(Loader(data, sampler, {.batch_size = 6, .drop_last = true}), UsageError);
  Loader loader(data, sampler, {.batch_size = 2});
  EXPECT_THROW(loader.seek({.epoch = 0, .batch = 4}), UsageError);
  EXPECT_THROW(loader.seek({.epoch = -1}), UsageError);
}

}  // namespace
}  // namespace rondo::loader_test
