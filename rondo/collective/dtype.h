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

// How collectives combine elements. average divides the sum by the number of ranks.
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

// Whether `reduction` is defined on `type` wherever there are reductions: no average on integers, no bits on
// floats.
bool supports(DType type, Reduction reduction);

// Whether `reduction` averages whole numbers, which are divided towards zero as NCCL does, or truth values,
// whose average is true where all are. Such an average cannot be made of the averages of parts, so it is
// defined for reduce() without weights and for the engine of one host only.
bool averages_integers(DType type, Reduction reduction);

}  // namespace rondo
