#include "rondo/data/sampler.h"

#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"

namespace rondo::sampler_test {
namespace {

std::uint32_t checksum(const std::vector<std::int64_t>& indices) {
  std::uint32_t value = 0;
  for (const std::int64_t index : indices) value = value * 1000003U + static_cast<std::uint32_t>(index) + 1U;
  return value;
}

TEST(DistributedSampler, EqualsPyTorchsOwn) {
  std::ifstream file(std::string(RONDO_SOURCE_DIR) + "/tests/data/distributed_sampler_reference.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 1000U);
  for (const nlohmann::json& entry : cases) {
    const auto size = entry[0].get<std::int64_t>();
    const nlohmann::json& ranks = entry[6];
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      DistributedSampler sampler(size, {.rank = static_cast<int>(rank),
                                        .world_size = entry[1],
                                        .shuffle = entry[3],
                                        .seed = entry[4],
                                        .drop_last = entry[2]});
      sampler.set_epoch(entry[5]);
      const std::vector<std::int64_t> indices = sampler.indices();
      ASSERT_EQ(sampler.size(), static_cast<std::int64_t>(indices.size()));
      if (size <= 3) {
        ASSERT_EQ(indices, ranks[rank].get<std::vector<std::int64_t>>()) << entry << " rank " << rank;
      } else {
        ASSERT_EQ(sampler.size(), ranks[rank][0].get<std::int64_t>()) << entry << " rank " << rank;
        ASSERT_EQ(checksum(indices), ranks[rank][1].get<std::uint32_t>()) << entry << " rank " << rank;
      }
    }
  }
}

TEST(DistributedSampler, WithoutANewEpochTheOrderStays) {
  DistributedSampler sampler(50, {.seed = 3});
  const auto first = sampler.indices();
  EXPECT_EQ(sampler.indices(), first);
  sampler.set_epoch(1);
  EXPECT_NE(sampler.indices(), first);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.indices(), first);
}

TEST(DistributedSampler, RefusesWhatCannotBe) {
  EXPECT_THROW(DistributedSampler(0, {}), UsageError);
  EXPECT_THROW(DistributedSampler(5, {.rank = 2, .world_size = 2}), UsageError);
  EXPECT_THROW(DistributedSampler(5, {.rank = -1, .world_size = 2}), UsageError);
  EXPECT_THROW(DistributedSampler(5, {.rank = 0, .world_size = 0}), UsageError);
}

TEST(ExactSampler, EverySampleOnceOverAllRanks) {
  for (const std::int64_t size : {0, 1, 2, 3, 7, 100}) {
    for (const int world : {1, 2, 3, 8}) {
      std::map<std::int64_t, int> seen;
      for (int rank = 0; rank < world; ++rank) {
        const ExactSampler sampler(size, rank, world);
        const auto indices = sampler.indices();
        EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(indices.size()));
        EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
        for (const std::int64_t index : indices) ++seen[index];
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size);
      for (const auto& [index, count] : seen) EXPECT_EQ(count, 1) << index;
    }
  }
  EXPECT_THROW(ExactSampler(5, 3, 3), UsageError);
}

// A torch::data data set whose samples are their own numbers.
struct Numbers : torch::data::Dataset<Numbers> {
  torch::data::Example<> get(std::size_t index) override {
    return {at::scalar_tensor(static_cast<std::int64_t>(index), at::kLong), at::scalar_tensor(0)};
  }
  std::optional<std::size_t> size() const override { return 11; }
};

TEST(TorchSampler, SplitsATorchDataLoaderOverRanks) {
  for (int rank = 0; rank < 2; ++rank) {
    const auto sampler = std::make_shared<DistributedSampler>(
        11, DistributedSamplerOptions{.rank = rank, .world_size = 2, .seed = 4});
    auto loader = torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()),
                                                TorchSampler(sampler), torch::data::DataLoaderOptions(4));
    for (const std::int64_t epoch : {0, 1, 2}) {
      sampler->set_epoch(epoch);
      std::vector<std::int64_t> seen;
      for (const auto& batch : *loader) {
        for (std::int64_t i = 0; i < batch.data.size(0); ++i)
          seen.push_back(batch.data[i].item<std::int64_t>());
      }
      EXPECT_EQ(seen, sampler->indices()) << "epoch " << epoch;
    }
  }
}

TEST(TorchSampler, ContinuesFromAnArchive) {
  const auto sampler = std::make_shared<DistributedSampler>(20, DistributedSamplerOptions{.seed = 1});
  sampler->set_epoch(3);
  TorchSampler first(sampler);
  first.next(7);
  torch::serialize::OutputArchive saved;
  first.save(saved);
  std::stringstream stream;
  saved.save_to(stream);
  torch::serialize::InputArchive loaded;
  loaded.load_from(stream);
  const auto other = std::make_shared<DistributedSampler>(20, DistributedSamplerOptions{.seed = 1});
  TorchSampler second(other);
  second.load(loaded);
  EXPECT_EQ(other->epoch(), 3);
  EXPECT_EQ(second.next(20), first.next(20));
  EXPECT_EQ(second.next(20), std::nullopt);
}

}  // namespace
}  // namespace rondo::sampler_test
