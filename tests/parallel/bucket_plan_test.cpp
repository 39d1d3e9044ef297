#include "rondo/parallel/gradients/bucket.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

namespace rondo::bucket_plan_test {
namespace {

GradientSpec spec(std::uint64_t bytes, c10::ScalarType dtype = c10::ScalarType::Float) {
  return {Bytes{bytes}, dtype, c10::Device(c10::DeviceType::CPU)};
}

TEST(BucketPlan, ParameterThatFillsABucketClosesIt) {
  const std::vector<GradientSpec> parameters = {spec(10), spec(10), spec(10), spec(30), spec(10)};
  const std::vector<std::size_t> order = {4, 3, 2, 1, 0};
  EXPECT_EQ(plan_buckets(parameters, order, Bytes{10}, Bytes{25}), (BucketPlan{{4}, {3}, {2, 1, 0}}));
}

TEST(BucketPlan, AParameterIsNeverSplit) {
  const std::vector<GradientSpec> parameters = {spec(1000), spec(5)};
  EXPECT_EQ(plan_buckets(parameters, std::vector<std::size_t>{1, 0}, Bytes{10}, Bytes{10}),
            (BucketPlan{{1, 0}}));
  EXPECT_EQ(plan_buckets(parameters, std::vector<std::size_t>{0, 1}, Bytes{10}, Bytes{10}),
            (BucketPlan{{0}, {1}}));
}

TEST(BucketPlan, DtypesHaveOwnBucketsAndFirstLimits) {
  const auto half = c10::ScalarType::Half;
  const std::vector<GradientSpec> parameters = {spec(8), spec(8, half), spec(8), spec(8, half), spec(8)};
  const std::vector<std::size_t> order = {0, 1, 2, 3, 4};
  EXPECT_EQ(plan_buckets(parameters, order, Bytes{8}, Bytes{100}), (BucketPlan{{0}, {1}, {2, 4}, {3}}));
}

TEST(BucketPlan, HoldsEveryParameterOnceWhateverTheSizes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<GradientSpec> parameters;
    const std::size_t count = 1 + random() % 40;
    for (std::size_t i = 0; i < count; ++i) {
      parameters.push_back(
          spec(random() % 100, random() % 3 ? c10::ScalarType::Float : c10::ScalarType::BFloat16));
    }
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::multiset<std::size_t> seen;
    for (const auto& bucket :
         plan_buckets(parameters, order, Bytes{random() % 60}, Bytes{1 + random() % 200})) {
      EXPECT_FALSE(bucket.empty());
      for (const std::size_t index : bucket) {
        seen.insert(index);
        EXPECT_EQ(parameters[index].dtype, parameters[bucket.front()].dtype);
      }
    }
    EXPECT_EQ(seen.size(), count);
    EXPECT_EQ(std::set<std::size_t>(seen.begin(), seen.end()).size(), count);
  }
}

}  // namespace
}  // namespace rondo::bucket_plan_test
