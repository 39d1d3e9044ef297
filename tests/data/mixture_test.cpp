#include "rondo/data/mixture.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/data/dataset.h"
#include "rondo/data/loader.h"
#include "rondo/data/training_sampler.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::mixture_test {
namespace {

using testing::expect_facts;
using testing::message_of;

std::shared_ptr<const Dataset> numbers(std::int64_t first, std::int64_t count) {
  const at::Tensor values = at::arange(first, first + count, at::kLong);
  return std::make_shared<TensorDataset>(std::vector{values}, std::vector{values * 10});
}

std::vector<std::int64_t> all_of(std::int64_t size) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(IndexPermutation, IsOneForEverySizeAndSeed) {
  for (const std::int64_t size : {1, 2, 3, 7, 64, 65, 1000}) {
    std::set<std::int64_t> seen;
    const IndexPermutation permutation(size, 5);
    for (std::int64_t i = 0; i < size; ++i) seen.insert(permutation(i));
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
  int moved = 0;
  for (std::int64_t i = 0; i < 1000; ++i)
    moved += IndexPermutation(1000, 1)(i) != IndexPermutation(1000, 2)(i) ? 1 : 0;
  EXPECT_GT(moved, 950);
}

TEST(Mixture, SharesFollowWeightsAndPassesAreComplete) {
  const Mixture mixture({numbers(0, 60), numbers(1000, 40)}, {0.3, 0.7}, 9);
  ASSERT_EQ(mixture.size(), 100);
  EXPECT_EQ(mixture.share_of(0), 30);
  EXPECT_EQ(mixture.share_of(1), 70);
  // Two epochs read the first part once; the second part's 140 samples are three and a half passes.
  std::vector<std::int64_t> first, second;
  for (const std::int64_t epoch : {0, 1}) {
    const Batch batch = mixture.get_at_epoch(all_of(100), epoch);
    EXPECT_TRUE(at::equal(batch.input() * 10, batch.target()));
    for (std::int64_t i = 0; i < 100; ++i) {
      const auto value = batch.input()[i].item<std::int64_t>();
      (value < 1000 ? first : second).push_back(value);
    }
  }
  std::sort(first.begin(), first.end());
  EXPECT_EQ(first, all_of(60));
  ASSERT_EQ(second.size(), 140U);
  for (int pass = 0; pass < 3; ++pass) {
    const std::set<std::int64_t> whole(second.begin() + pass * 40, second.begin() + (pass + 1) * 40);
    EXPECT_EQ(whole.size(), 40U) << "pass " << pass;
  }
  EXPECT_FALSE(std::equal(second.begin(), second.begin() + 40, second.begin() + 40)) << "passes differ";
}

TEST(Mixture, DependsOnTheSeedOnly) {
  const auto make = [](std::uint64_t seed) {
    return Mixture({numbers(0, 50), numbers(100, 50)}, {1, 2}, seed);
  };
  const Mixture mixture = make(4);
  const at::Tensor whole = mixture.get_at_epoch(all_of(100), 3).input();
  EXPECT_TRUE(at::equal(whole, make(4).get_at_epoch(all_of(100), 3).input()));
  EXPECT_FALSE(at::equal(whole, make(5).get_at_epoch(all_of(100), 3).input()));
  const std::vector<std::int64_t> some = {99, 3, 50, 3};
  const Batch batch = mixture.get_at_epoch(some, 3);
  for (std::size_t i = 0; i < some.size(); ++i)
    EXPECT_EQ(batch.input()[static_cast<std::int64_t>(i)].item<std::int64_t>(),
              whole[some[i]].item<std::int64_t>());
  EXPECT_EQ(mixture.get({}).samples, 0);
}

TEST(Mixture, OfOtherFormsOrWeightsIsRefused) {
  const TemporaryDirectory directory;
  std::string table;
  for (int i = 0; i < 20; ++i) table += std::to_string(i) + ",0.5," + (i % 2 != 0 ? "yes" : "no") + "\n";
  const std::string csv = directory.write("table.csv", table),
                    text = directory.write("a.txt", std::string(500, 'a'));
  const DataOptions options{.validation_fraction = 0.1, .context = 8};
  expect_facts(message_of<UsageError>([&] {
                 open_mixture("auto", {csv, text}, {1, 1}, options);
               }),
               {"kind", "csv", "text", "a.txt"});
  expect_facts(message_of<UsageError>([&] { open_mixture("text", {text, text}, {1}, options); }), {"2", "1"});
  expect_facts(message_of<UsageError>([&] { open_mixture("text", {text, text}, {1, 0}, options); }), {"0"});
  const OpenedData mixed = open_mixture("text", {text, text}, {1, 3}, options);
  EXPECT_EQ(mixed.train->size(), 2 * ((450 - 1) / 8));
  EXPECT_EQ(mixed.validation->size(), 2 * ((50 - 1) / 8));
}

// A data set in shards that defines its own reading order.
class Shards final : public TensorDataset, public EpochOrder {
 public:
  Shards() : TensorDataset({at::arange(0, 100, at::kLong)}, {at::arange(0, 100, at::kLong)}) {}
  std::vector<std::int64_t> shuffled(std::uint64_t seed) const override {
    return order_of_shards(std::vector<std::int64_t>{0, 30, 30, 55, 100}, 20, seed);
  }
};

// Returns the samples of epoch 1 that readers have received after `batches` batches of `size` each; all of
// them if -1.
std::vector<std::int64_t> taken(const std::shared_ptr<const Dataset>& data, int readers, std::int64_t size,
                                std::int64_t batches, std::int64_t done) {
  std::vector<std::int64_t> seen;
  for (int reader = 0; reader < readers; ++reader) {
    auto sampler = std::make_shared<TrainingSampler>(data->size(),
                                                     TrainingSampler::Options{.index = reader,
                                                                              .count = readers,
                                                                              .seed = 7,
                                                                              .done = {{.samples = done}},
                                                                              .done_epoch = 1,
                                                                              .order = epoch_order_of(data)});
    Loader loader(data, sampler, {.batch_size = size, .threads = reader % 3});
    loader.seek({.epoch = 1});
    while (batches < 0 || loader.position().batch < batches) {
      const std::optional<Batch> batch = loader.next();
      if (!batch) break;
      seen.insert(seen.end(), batch->indices.begin(), batch->indices.end());
    }
  }
  return seen;
}

// After each of 50 random positions, reads the rest with another world size and batch size.
TEST(Resume, AnyWorldReadsRemainingSamplesOnce) {
  const std::vector<std::shared_ptr<const Dataset>> all = {
      std::make_shared<Mixture>(std::vector{numbers(0, 60), numbers(100, 41)}, std::vector{0.8, 0.2}, 3),
      std::make_shared<Shards>()};
  RandomStream random(17);
  for (int position = 0; position < 50; ++position) {
    for (const auto& data : all) {
      const int before = 1 + static_cast<int>(random.below(5)), after = 1 + static_cast<int>(random.below(6));
      const auto size = static_cast<std::int64_t>(1 + random.below(7));
      const auto steps = static_cast<std::int64_t>(
          random.below(static_cast<std::uint64_t>(data->size() / (before * size)) + 1));
      std::vector<std::int64_t> seen = taken(data, before, size, steps, 0);
      const auto done = static_cast<std::int64_t>(seen.size());
      EXPECT_EQ(done, steps * before * size);
      const std::vector<std::int64_t> rest =
          taken(data, after, static_cast<std::int64_t>(1 + random.below(9)), -1, done);
      seen.insert(seen.end(), rest.begin(), rest.end());
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, all_of(data->size())) << before << " then " << after << " readers after " << done;
    }
  }
}

TEST(EpochOrder, ShufflesShardsAndMovesAWindow) {
  const std::vector<std::int64_t> starts = {0, 300, 600, 900};
  const std::vector<std::int64_t> order = order_of_shards(starts, 50, 8);
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, all_of(900));
  EXPECT_NE(order, sorted);
  EXPECT_EQ(order, order_of_shards(starts, 50, 8));
  EXPECT_NE(order, order_of_shards(starts, 50, 9));
  // A sample comes no earlier than the window allows: at most 50 samples of a shard are missing when the next
  // one begins.
  std::vector<std::int64_t> shards;
  for (const std::int64_t sample : order) {
    if (std::find(shards.begin(), shards.end(), sample / 300) == shards.end()) shards.push_back(sample / 300);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto place = std::find(shards.begin(), shards.end(), order[i] / 300) - shards.begin();
    EXPECT_GE(static_cast<std::int64_t>(i) + 50, place * 300 + order[i] % 300);
  }
}

}  // namespace
}  // namespace rondo::mixture_test
