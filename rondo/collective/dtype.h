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

// Returns the size of an element in bytes.
std::size_t element_bytes(DType type);
// Returns the name for messages: "float32".
const char* name(DType type);
// Returns the name for messages: "SUM".
const char* name(Reduction reduction);
// Returns whether the elements are floating-point numbers.
bool is_floating(DType type);

// Returns whether every engine supports `reduction` on `type`: no average of integers, no bitwise operations
// on floats.
bool supports(DType type, Reduction reduction);

// Returns whether `reduction` is an average of integers, which rounds towards zero as in NCCL, or of
// booleans, which is true if all are. Such an average cannot be computed from averages of parts, so only
// reduce() without weights and the engine of one host support it.
bool averages_integers(DType type, Reduction reduction);

}  // namespace rondo
