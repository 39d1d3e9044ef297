#include "rondo/collective/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "rondo/base/error.h"

namespace rondo::reduction_test {
namespace {

template <class T>
struct Buffers {
  std::vector<std::vector<T>> sources;
  std::vector<const std::byte*> source_pointers() const {
    std::vector<const std::byte*> pointers;
    for (const auto& source : sources) pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
    return pointers;
  }
};

template <class T>
std::vector<T> run(DType type, Reduction reduction, const std::vector<std::vector<T>>& sources,
                   std::vector<double> weights = {}) {
  const Buffers<T> buffers{sources};
  const auto pointers = buffers.source_pointers();
  std::vector<T> first(sources[0].size());
  std::vector<T> second(sources[0].size());
  const std::vector<std::byte*> destinations{reinterpret_cast<std::byte*>(first.data()),
                                             reinterpret_cast<std::byte*>(second.data())};
  reduce({type, reduction, pointers, destinations, sources[0].size(), weights});
  EXPECT_TRUE(first.empty() || std::memcmp(first.data(), second.data(), first.size() * sizeof(T)) == 0);
  return first;
}

std::vector<std::vector<float>> random_floats(int ranks, std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (auto& one : all) {
    for (auto& value : one) value = normal(random);
  }
  return all;
}

TEST(Reduction, SumsInRankOrderForEveryLength) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::size_t n : {0, 1, 7, 64, 1023, 1024, 1025, 5000}) {
      const auto sources = random_floats(ranks, n, 7);
      const auto sum = run(DType::float32, Reduction::sum, sources);
      for (std::size_t i = 0; i < n; ++i) {
        float expected = sources[0][i];
        for (int r = 1; r < ranks; ++r) expected += sources[static_cast<std::size_t>(r)][i];
        ASSERT_EQ(sum[i], expected) << ranks << " ranks, element " << i << " of " << n;
      }
    }
  }
}

TEST(Reduction, CancellingInputsShowTheOrder) {
  // (1e8 + 1) - 1e8 is 0 in float32, (1e8 - 1e8) + 1 would be 1.
  EXPECT_EQ(run<float>(DType::float32, Reduction::sum, {{1e8F}, {1.0F}, {-1e8F}})[0], 0.0F);
}

TEST(Reduction, AveragesInPlace) {
  std::vector<float> a{1, 2, 3};
  std::vector<float> b{3, 4, 5};
  const std::vector<const std::byte*> sources{reinterpret_cast<std::byte*>(a.data()),
                                              reinterpret_cast<std::byte*>(b.data())};
  const std::vector<std::byte*> destinations{reinterpret_cast<std::byte*>(a.data()),
                                             reinterpret_cast<std::byte*>(b.data())};
  reduce({DType::float32, Reduction::average, sources, destinations, 3, {}});
  EXPECT_EQ(a, (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(b, a);
}

TEST(Reduction, WeightsLeaveOutWhatCountsNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto mean = run<float>(DType::float32, Reduction::average, {{1, 1}, {5, 9}, {nan, nan}}, {1, 3, 0});
  EXPECT_FLOAT_EQ(mean[0], 4);
  EXPECT_FLOAT_EQ(mean[1], 7);
}

TEST(Reduction, IntegersWrapAndCombineBits) {
  EXPECT_EQ(run<std::int8_t>(DType::int8, Reduction::sum, {{100}, {100}})[0], static_cast<std::int8_t>(200));
  EXPECT_EQ(run<std::int16_t>(DType::int16, Reduction::product, {{300}, {300}})[0],
            static_cast<std::int16_t>(90000));
  EXPECT_EQ(run<std::int64_t>(DType::int64, Reduction::maximum, {{-5}, {3}, {2}})[0], 3);
  EXPECT_EQ(run<std::int32_t>(DType::int32, Reduction::bitwise_and, {{6}, {3}})[0], 2);
  EXPECT_EQ(run<std::int32_t>(DType::int32, Reduction::bitwise_or, {{6}, {3}})[0], 7);
  EXPECT_EQ(run<std::uint8_t>(DType::uint8, Reduction::bitwise_xor, {{6}, {3}})[0], 5);
  EXPECT_EQ(run<std::uint8_t>(DType::boolean, Reduction::sum, {{1}, {1}})[0], 1);
  EXPECT_EQ(run<std::uint8_t>(DType::boolean, Reduction::product, {{1}, {0}})[0], 0);
}

TEST(Reduction, MinimumAndMaximumPassNanOn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto reduction : {Reduction::minimum, Reduction::maximum}) {
    EXPECT_TRUE(std::isnan(run<float>(DType::float32, reduction, {{nan}, {1}})[0]));
    EXPECT_TRUE(std::isnan(run<float>(DType::float32, reduction, {{1}, {nan}})[0]));
  }
}

TEST(Reduction, RefusesWhatIsNotDefined) {
  EXPECT_THROW(run<float>(DType::float32, Reduction::bitwise_and, {{1}, {1}}), UsageError);
  EXPECT_THROW(run<std::int32_t>(DType::int32, Reduction::average, {{1}, {1}}, {1, 1}), UsageError);
}

TEST(Reduction, AveragesOfWholeNumbersAreDividedTowardsZero) {
  EXPECT_EQ(run<std::int64_t>(DType::int64, Reduction::average, {{5, -5, 7}, {2, -2, 1}}),
            (std::vector<std::int64_t>{3, -3, 4}));
  EXPECT_EQ(run<std::int32_t>(DType::int32, Reduction::average, {{1}, {0}, {1}}),
            (std::vector<std::int32_t>{0}));
  // The sum does not wrap.
  EXPECT_EQ(run<std::int8_t>(DType::int8, Reduction::average, {{100, -128}, {101, -127}}),
            (std::vector<std::int8_t>{100, -127}));
  EXPECT_EQ(run<std::uint8_t>(DType::uint8, Reduction::average, {{255}, {254}}),
            (std::vector<std::uint8_t>{254}));
  EXPECT_EQ(run<std::uint8_t>(DType::boolean, Reduction::average, {{1, 1}, {1, 0}}),
            (std::vector<std::uint8_t>{1, 0}));
}

// Every half and bfloat16 value must survive load and store unchanged (a sum
// over one rank converts both ways), in the vector loop and in the tail.
TEST(Reduction, SixteenBitTypesConvertExactly) {
  for (const DType type : {DType::float16, DType::bfloat16}) {
    std::vector<std::uint16_t> all(65536 + 3);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const auto result = run<std::uint16_t>(type, Reduction::sum, {all});
    const std::uint16_t exponent = type == DType::float16 ? 0x7c00 : 0x7f80;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((all[i] & exponent) == exponent && (all[i] & ~exponent & 0x7fff) != 0) {
        EXPECT_TRUE((result[i] & exponent) == exponent && (result[i] & ~exponent & 0x7fff) != 0)
            << i;  // still NaN
      } else {
        ASSERT_EQ(result[i], all[i]) << name(type) << " " << i;
      }
    }
  }
}

TEST(Reduction, BFloat16AccumulatesInFloat32) {
  // 256 + 1 + 1 in bfloat16 steps stays 256; accumulated in float32 it is 258.
  const std::uint16_t big = 0x4380;  // 256
  const std::uint16_t one = 0x3f80;
  EXPECT_EQ(run<std::uint16_t>(DType::bfloat16, Reduction::sum, {{big}, {one}, {one}})[0],
            0x4381);  // 258
}

}  // namespace
}  // namespace rondo::reduction_test
