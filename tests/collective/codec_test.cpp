#include "rondo/collective/codec/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/collective/codec/kernels.h"
#include "tests/errors.h"

namespace rondo::collective::codec_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// All names, and top_k with other fractions.
std::vector<std::string> names() {
  std::vector<std::string> all = codec_names();
  all.insert(all.end(), {"top_k:0.3", "top_k:1", "top_k:1e-9"});
  return all;
}

std::vector<float> random_values(std::size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> encode(Codec& codec, const std::vector<float>& values,
                              std::span<float> residual = {}) {
  std::vector<std::byte> encoded(codec.encoded_bytes(values.size()));
  codec.encode(values, encoded, residual);
  return encoded;
}

std::vector<float> decode(const Codec& codec, std::span<const std::byte> encoded, std::size_t n) {
  std::vector<float> values(n, 77);
  codec.decode(encoded, values);
  return values;
}

double largest_magnitude(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

// Lengths around the blocks of the formats and the widths of the instructions.
const std::vector<std::size_t> kLengths = {0, 1, 2, 7, 8, 15, 17, 255, 256, 257, 511, 512, 513, 1024, 5003};

TEST(Codec, ErrorsStayWithinBoundForLengthsAndScales) {
  for (const std::string& name : names()) {
    const auto codec = make_codec(name);
    EXPECT_TRUE(name.starts_with(codec->name()));
    for (const std::size_t n : kLengths) {
      for (const float scale : {1e-42F, 1e-36F, 1e-6F, 1.0F, 1000.0F}) {
        const std::vector<float> values = random_values(n, static_cast<unsigned>(n), scale);
        const std::vector<float> decoded = decode(*codec, encode(*codec, values), n);
        const double bound = codec->error_bound(largest_magnitude(values));
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_LE(std::abs(double{decoded[i]} - values[i]), bound) << name << " " << n << " " << scale;
        }
      }
    }
  }
}

TEST(Codec, DecodeAddAddsWhatDecodeGives) {
  for (const std::string& name : names()) {
    const auto codec = make_codec(name);
    for (const std::size_t n : kLengths) {
      const std::vector<std::byte> encoded = encode(*codec, random_values(n, 3));
      const std::vector<float> decoded = decode(*codec, encoded, n);
      const std::vector<float> start = random_values(n, 4);
      std::vector<float> sum = start;
      codec->decode_add(encoded, sum);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], start[i] + decoded[i]) << name << " " << n;
    }
  }
}

TEST(Codec, ErrorFeedbackDeliversEverythingInTheEnd) {
  constexpr std::size_t n = 1500;
  constexpr int steps = 200;
  for (const std::string& name : names()) {
    const auto codec = make_codec(name);
    if (!codec->needs_residual()) continue;
    std::vector<float> residual(n, 0);
    std::vector<double> given(n, 0);
    std::vector<double> received(n, 0);
    std::vector<double> without_feedback(n, 0);
    // A gradient with a constant direction, as in training; most values are far below the largest ones.
    std::vector<float> direction = random_values(n, 1);
    for (std::size_t i = 0; i < n; i += 100) direction[i] *= 300;
    for (int step = 0; step < steps; ++step) {
      std::vector<float> values = random_values(n, static_cast<unsigned>(step), 0.3F);
      for (std::size_t i = 0; i < n; ++i) values[i] += direction[i];
      const std::vector<float> plain = decode(*codec, encode(*codec, values), n);
      const std::vector<float> decoded = decode(*codec, encode(*codec, values, residual), n);
      for (std::size_t i = 0; i < n; ++i) {
        given[i] += values[i];
        received[i] += decoded[i];
        without_feedback[i] += plain[i];
      }
    }
    double lost = 0;
    for (std::size_t i = 0; i < n; ++i) {
      // Up to the rounding of adding the residual.
      const double rounding = 1e-6 * steps * (std::abs(double{direction[i]}) + std::abs(residual[i]) + 3);
      ASSERT_NEAR(received[i] + residual[i], given[i], rounding) << name << " " << i;
      lost = std::max(lost, std::abs(without_feedback[i] - given[i]));
    }
    // Without feedback something must be lost permanently, or the test proves nothing.
    EXPECT_TRUE(lost > 100 || (name != "int8" && name != "top_k")) << name;
    if (name == "int8") {
      for (const float left : residual) EXPECT_LE(std::abs(left), codec->error_bound(2000)) << name;
    }
  }
}

TEST(Codec, ZerosStayZeros) {
  for (const std::string& name : names()) {
    const auto codec = make_codec(name);
    const std::vector<float> zeros(700, 0);
    std::vector<float> residual(700, 0);
    EXPECT_EQ(decode(*codec, encode(*codec, zeros, residual), 700), zeros) << name;
    EXPECT_EQ(residual, zeros) << name;
    EXPECT_EQ(codec->encoded_bytes(0), 0U) << name;
  }
}

TEST(Codec, WhatIsNotFiniteIsSeenAndForgotten) {
  for (const std::string& name : codec_names()) {
    const auto codec = make_codec(name);
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      std::vector<float> values = random_values(2000, 5);
      values[700] = values[701] = bad;
      std::vector<float> residual(2000, 0);
      const std::vector<float> decoded = decode(*codec, encode(*codec, values, residual), 2000);
      EXPECT_FALSE(std::isfinite(decoded[700])) << name;
      // Only the block from 512 to 1023 of int8 is lost.
      EXPECT_TRUE(std::isfinite(decoded[511]) && std::isfinite(decoded[1024])) << name;
      for (const float left : residual) ASSERT_TRUE(std::isfinite(left)) << name;
    }
    // The limits of float32's range; float16's is smaller.
    const std::vector<float> ends = {kLargest, -kLargest, 1, std::numeric_limits<float>::denorm_min()};
    const std::vector<float> decoded = decode(*codec, encode(*codec, ends), 4);
    if (name == "bfloat16" || name == "float16") {
      EXPECT_EQ(decoded[0], kInfinity) << name;
    } else {
      EXPECT_TRUE(std::isfinite(decoded[0])) << name;
    }
  }
  // More of them than top_k sends: none may remain in the residual.
  const auto codec = make_codec("top_k:0.01");
  std::vector<float> residual(1000, 0);
  encode(*codec, std::vector<float>(1000, kNan), residual);
  EXPECT_EQ(residual, std::vector<float>(1000, 0));
}

TEST(Codec, KnownEncodings) {
  EXPECT_EQ(
      decode(*make_codec("float16"), encode(*make_codec("float16"), {1, -2.5F, 65504, 65520, 6e-8F}), 5),
      (std::vector<float>{1, -2.5F, 65504, kInfinity, 0x1p-24F}));
  EXPECT_EQ(
      decode(*make_codec("bfloat16"), encode(*make_codec("bfloat16"), {1, 1.00390625F, 1.01171875F}), 3),
      (std::vector<float>{1, 1, 1.015625F}));  // ties go to even
  const auto int8 = make_codec("int8");
  const std::vector<std::byte> encoded = encode(*int8, {127, -127, 0.5F, 1.5F, -63});
  ASSERT_EQ(encoded.size(), 9U);
  float scale = 0;
  std::memcpy(&scale, encoded.data(), sizeof(scale));
  EXPECT_EQ(scale, 1);
  const std::vector<int> bytes = {127, -127, 0, 2, -63};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(static_cast<std::int8_t>(encoded[4 + i]), bytes[i]);
  }
  EXPECT_EQ(int8->encoded_bytes(1025), 1025U + 3 * 4);
}

TEST(Codec, TopKKeepsLargestAndFirstOfTies) {
  const auto codec = make_codec("top_k:0.5");
  std::vector<float> residual = {0, 0, 0, 5, 0, 0};
  const std::vector<float> values = {1, -3, 2, -2, 2, 2};
  EXPECT_EQ(decode(*codec, encode(*codec, values, residual), 6), (std::vector<float>{0, -3, 2, 3, 0, 0}));
  EXPECT_EQ(residual, (std::vector<float>{1, 0, 0, 0, 2, 2}));

  // Against a sort, on values that share their leading bits.
  for (const std::size_t n : {10, 1000, 4096}) {
    std::mt19937 random(9);
    std::vector<float> many(n);
    for (float& value : many) value = 1.0F + 1e-6F * static_cast<float>(random() % 50);
    const auto sparse = make_codec("top_k:0.1");
    const std::vector<float> decoded = decode(*sparse, encode(*sparse, many), n);
    std::vector<float> sorted = many;
    std::sort(sorted.rbegin(), sorted.rend());
    const std::size_t k = (n + 9) / 10;
    EXPECT_EQ(n - static_cast<std::size_t>(std::count(decoded.begin(), decoded.end(), 0.0F)), k);
    for (std::size_t i = 0; i < n; ++i) {
      if (many[i] == sorted[k - 1]) continue;
      EXPECT_EQ(decoded[i], many[i] > sorted[k - 1] ? many[i] : 0);
    }
  }
}

TEST(Codec, EveryInstructionSetComputesTheSameBits) {
  const auto builds = kernels::runnable_kernels();
  const kernels::CodecKernels& plain = *builds.back();
  EXPECT_STREQ(plain.name, "baseline");
  std::vector<float> values = random_values(507, 11, 100);
  values[3] = 1e-42F;
  values[5] = 70000;
  values[8] = -0.0F;
  for (const kernels::CodecKernels* build : builds) {
    std::vector<std::uint16_t> half(values.size());
    std::vector<std::uint16_t> expected_half(values.size());
    build->to_float16(values.data(), half.data(), values.size());
    plain.to_float16(values.data(), expected_half.data(), values.size());
    EXPECT_EQ(half, expected_half) << build->name;
    build->to_bfloat16(values.data(), half.data(), values.size());
    plain.to_bfloat16(values.data(), expected_half.data(), values.size());
    EXPECT_EQ(half, expected_half) << build->name;

    std::vector<std::int8_t> bytes(values.size());
    std::vector<std::int8_t> expected_bytes(values.size());
    std::vector<float> residual = random_values(values.size(), 12);
    std::vector<float> expected_residual = residual;
    EXPECT_EQ(build->to_int8(values.data(), residual.data(), bytes.data(), values.size()),
              plain.to_int8(values.data(), expected_residual.data(), expected_bytes.data(), values.size()));
    EXPECT_EQ(bytes, expected_bytes) << build->name;
    EXPECT_EQ(residual, expected_residual) << build->name;
    std::vector<float> sum = values;
    std::vector<float> expected_sum = values;
    build->add_int8(bytes.data(), 0.37F, sum.data(), sum.size());
    plain.add_int8(bytes.data(), 0.37F, expected_sum.data(), sum.size());
    EXPECT_EQ(sum, expected_sum) << build->name;
  }
}

TEST(Codec, WrongUseIsNamed) {
  const std::string unknown = testing::message_of<Error>([] { make_codec("int7"); });
  for (const std::string& name : codec_names()) EXPECT_NE(unknown.find(name), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("int7"), std::string::npos);
  EXPECT_THROW(make_codec("int8:3"), UsageError);
  for (const char* name : {"top_k:0", "top_k:1.5", "top_k:nan", "top_k:-1", "top_k:many"}) {
    EXPECT_THROW(make_codec(name), UsageError) << name;
  }

  const auto codec = make_codec("int8");
  std::vector<float> values(10, 1);
  std::vector<std::byte> encoded(codec->encoded_bytes(10));
  std::vector<float> residual(9);
  EXPECT_THROW(codec->encode(values, std::span(encoded).first(9), {}), UsageError);
  EXPECT_THROW(codec->encode(values, encoded, residual), UsageError);
  EXPECT_THROW(codec->decode(std::span(encoded).first(9), values), DataError);
  EXPECT_THROW(codec->decode_add(std::span(encoded).first(9), values), DataError);

  // An index beyond the values must not be written.
  const auto top_k = make_codec("top_k:0.1");
  std::vector<std::byte> sparse = encode(*top_k, values);
  const std::uint32_t beyond = 10;
  std::memcpy(sparse.data(), &beyond, sizeof(beyond));
  EXPECT_THROW(top_k->decode(sparse, values), DataError);
}

TEST(Codec, ProgramsAddTheirOwn) {
  // Begins with the name of the codec it makes: tests that run after this one try it too.
  register_codec("top_k_of_mine",
                 [](std::string_view argument) { return make_codec("top_k:" + std::string(argument)); });
  EXPECT_EQ(make_codec("top_k_of_mine:0.25")->encoded_bytes(100), 200U);
  EXPECT_NE(testing::message_of<Error>([] { make_codec("yours"); }).find("top_k_of_mine"), std::string::npos);
}

}  // namespace
}  // namespace rondo::collective::codec_test
