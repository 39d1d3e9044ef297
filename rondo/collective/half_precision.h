// float16 and bfloat16 in memory, and their conversions from and to float32. Included by source files that
// are compiled once per instruction set, so everything here has internal linkage and uses no inline function
// of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace rondo {
namespace {

inline float bits_to_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline std::uint32_t float_to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

struct BFloat16 {
  using Storage = std::uint16_t;
  using Accumulator = float;
  static void load(const Storage* from, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = bits_to_float(static_cast<std::uint32_t>(from[i]) << 16);
  }
  static void store(const float* from, Storage* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t bits = float_to_bits(from[i]);
      const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
      const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
      to[i] = static_cast<Storage>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
    }
  }
};

struct Float16 {
  using Storage = std::uint16_t;
  using Accumulator = float;

  static float to_float(Storage half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
    const std::uint32_t magnitude = half & 0x7fffU;
    if (magnitude >= 0x7c00U) return bits_to_float(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    // Multiplying by 2^112 adjusts the exponent and makes subnormal halves exact.
    const float value = bits_to_float(magnitude << 13) * 0x1p112F;
    return bits_to_float(float_to_bits(value) | sign);
  }
  static Storage to_half(float value) {
    const std::uint32_t bits = float_to_bits(value);
    const auto sign = static_cast<Storage>(bits >> 16 & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return static_cast<Storage>(sign | 0x7e00U);
    if (magnitude >= 0x477ff000U) return static_cast<Storage>(sign | 0x7c00U);
    if (magnitude < 0x38800000U) {
      // Adding 0.5 aligns the mantissa of a subnormal half with the end of the float's and rounds to nearest
      // even.
      const float aligned = bits_to_float(magnitude) + 0.5F;
      return static_cast<Storage>(sign | (float_to_bits(aligned) - 0x3f000000U));
    }
    const std::uint32_t odd = magnitude >> 13 & 1U;
    return static_cast<Storage>(sign | ((magnitude - 0x38000000U + 0xfffU + odd) >> 13));
  }

  static void load(const Storage* from, float* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#endif
    for (; i < n; ++i) to[i] = to_float(from[i]);
  }
  static void store(const float* from, Storage* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; ++i) to[i] = to_half(from[i]);
  }
};

}  // namespace
}  // namespace rondo
