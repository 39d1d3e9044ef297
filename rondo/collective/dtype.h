#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo {

// Element types that collectives reduce.
enum class DType : std::uint8_t {
  float32,   // IEEE 754
  float64,   // IEEE 754
  float16,   // IEEE 754, added in float32
  bfloat16,  // the upper half of a float32, added in float32
  int8,      // signed
  uint8,     // unsigned
  int16,     // signed
  int32,     // signed
  int64,     // signed
  boolean    // one byte, 0 or 1
};

// How collectives combine elements. average divides the sum by the number of ranks.
enum class Reduction : std::uint8_t {
  sum,          // c10d's SUM
  average,      // AVG
  product,      // PRODUCT
  minimum,      // MIN
  maximum,      // MAX
  bitwise_and,  // BAND
  bitwise_or,   // BOR
  bitwise_xor   // BXOR
};

// Size of an element.
std::size_t element_bytes(DType type);
// As messages have it: "float32".
const char* name(DType type);
// As messages have it: "SUM".
const char* name(Reduction reduction);
// Whether its elements are floating-point numbers.
bool is_floating(DType type);

// Whether `reduction` is defined on `type` wherever there are reductions: no average on integers, no bits on
// floats.
bool supports(DType type, Reduction reduction);

// Whether `reduction` averages whole numbers, which are divided towards zero as NCCL does, or truth values,
// whose average is true where all are. Such an average cannot be made of the averages of parts, so it is
// defined for reduce() without weights and for the engine of one host only.
bool averages_integers(DType type, Reduction reduction);

}  // namespace rondo
