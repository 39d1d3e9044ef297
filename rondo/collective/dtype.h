#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo {

// Element types that collectives reduce.
enum class DType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  int8,
  uint8,
  int16,
  int32,
  int64,
  boolean
};

// How collectives combine elements. average divides the sum by the number of ranks (floating types only).
enum class Reduction : std::uint8_t {
  sum,
  average,
  product,
  minimum,
  maximum,
  bitwise_and,
  bitwise_or,
  bitwise_xor
};

std::size_t element_bytes(DType type);
const char* name(DType type);
const char* name(Reduction reduction);
bool is_floating(DType type);

// Whether `reduction` is defined on `type`: no average on integers, no bits on floats.
bool supports(DType type, Reduction reduction);

}  // namespace rondo
