// The loops of CodecKernels. Included by one source file per instruction set, each compiled with its own
// flags, so everything here has internal linkage and uses no inline function of the standard library.
#pragma once

#include "rondo/collective/codec/kernels.h"
#include "rondo/collective/half_precision.h"

namespace rondo::collective::kernels {
namespace {

template <class Format>
void encode_half(const float* values, std::uint16_t* encoded, std::size_t n) {
  Format::store(values, encoded, n);
}

template <class Format>
void decode_half(const std::uint16_t* encoded, float* values, std::size_t n) {
  Format::load(encoded, values, n);
}

template <class Format>
void add_half(const std::uint16_t* encoded, float* values, std::size_t n) {
  constexpr std::size_t block = 256;
  alignas(64) float decoded[block];
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t count = n - begin < block ? n - begin : block;
    Format::load(encoded + begin, decoded, count);
    for (std::size_t i = 0; i < count; ++i) values[begin + i] += decoded[i];
  }
}

// 2^-119. For smaller magnitudes 127 / largest overflows: such a block is encoded as zeros.
constexpr std::uint32_t kSmallestScaled = 0x04000000U;
constexpr std::uint32_t kInfinity = 0x7f800000U;

float int8_scale(float largest) {
  const float scale = largest / 127.0F;
  // The largest float32 must not decode as infinity.
  const bool overflows = float_to_bits(scale * 127.0F) >= kInfinity;
  return overflows ? bits_to_float(float_to_bits(scale) - 1) : scale;
}

float encode_int8(const float* values, float* residual, std::int8_t* encoded, std::size_t n) {
  alignas(64) float inputs[kInt8Block];
  std::uint32_t largest_bits = 0;
  if (residual != nullptr) {
    for (std::size_t i = 0; i < n; ++i) inputs[i] = values[i] + residual[i];
  } else {
    for (std::size_t i = 0; i < n; ++i) inputs[i] = values[i];
  }
  // Compares magnitudes as integers, which have the same order; infinities and NaNs are the largest.
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = float_to_bits(inputs[i]) & 0x7fffffffU;
    largest_bits = magnitude > largest_bits ? magnitude : largest_bits;
  }
  if (largest_bits < kSmallestScaled || largest_bits >= kInfinity) {
    const bool finite = largest_bits < kInfinity;
    for (std::size_t i = 0; i < n; ++i) encoded[i] = 0;
    for (std::size_t i = 0; residual != nullptr && i < n; ++i) residual[i] = finite ? inputs[i] : 0.0F;
    return finite ? 0.0F : bits_to_float(0x7fc00000U);
  }
  const float scale = int8_scale(bits_to_float(largest_bits));
  const float inverse = 127.0F / bits_to_float(largest_bits);
  // Adding 1.5 * 2^23 rounds to an integer, nearest even, and leaves the integer in the low bits of the sum.
  constexpr float kRound = 0x1.8p23F;
  for (std::size_t i = 0; i < n; ++i) {
    inputs[i] = inputs[i] * inverse + kRound;
    encoded[i] = static_cast<std::int8_t>(float_to_bits(inputs[i]));
  }
  if (residual != nullptr) {
    for (std::size_t i = 0; i < n; ++i) {
      residual[i] = values[i] + residual[i] - (inputs[i] - kRound) * scale;
    }
  }
  return scale;
}

void decode_int8(const std::int8_t* encoded, float scale, float* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(encoded[i]) * scale;
}

void add_int8(const std::int8_t* encoded, float scale, float* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) values[i] += static_cast<float>(encoded[i]) * scale;
}

constexpr CodecKernels make_kernels(const char* name) {
  return {name,
          encode_half<Float16>,
          decode_half<Float16>,
          add_half<Float16>,
          encode_half<BFloat16>,
          decode_half<BFloat16>,
          add_half<BFloat16>,
          encode_int8,
          decode_int8,
          add_int8};
}

}  // namespace
}  // namespace rondo::collective::kernels
