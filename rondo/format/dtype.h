#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace rondo {

// Element types that files of tensors carry: those of safetensors that libtorch has too.
enum class Dtype {
  boolean,
  uint8,
  int8,
  float8_e4m3,
  float8_e5m2,
  int16,
  uint16,
  float16,
  bfloat16,
  int32,
  uint32,
  float32,
  int64,
  uint64,
  float64,
  complex64,
};

// Name in a safetensors header: "F32", "BF16", "I64", "BOOL".
std::string_view safetensors_name(Dtype dtype);
// Name in rondo's flags, JSON and messages: "float32", "bfloat16", "int64", "bool".
std::string_view to_string(Dtype dtype);
// Bytes of one element.
std::size_t element_size(Dtype dtype);
// Empty when rondo does not know `name`.
std::optional<Dtype> dtype_from_safetensors(std::string_view name);

// Bytes of a dense tensor of this shape; empty when the product does not fit 63 bits.
std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape);

}  // namespace rondo
