#include "rondo/format/dtype.h"

#include <array>

namespace rondo {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view safetensors;
  std::string_view name;
  std::size_t size;
};

// In the order of the enumeration, so that a dtype is its own index.
constexpr std::array<DtypeRow, 16> rows{{
    {Dtype::boolean, "BOOL", "bool", 1},
    {Dtype::uint8, "U8", "uint8", 1},
    {Dtype::int8, "I8", "int8", 1},
    {Dtype::float8_e4m3, "F8_E4M3", "float8_e4m3", 1},
    {Dtype::float8_e5m2, "F8_E5M2", "float8_e5m2", 1},
    {Dtype::int16, "I16", "int16", 2},
    {Dtype::uint16, "U16", "uint16", 2},
    {Dtype::float16, "F16", "float16", 2},
    {Dtype::bfloat16, "BF16", "bfloat16", 2},
    {Dtype::int32, "I32", "int32", 4},
    {Dtype::uint32, "U32", "uint32", 4},
    {Dtype::float32, "F32", "float32", 4},
    {Dtype::int64, "I64", "int64", 8},
    {Dtype::uint64, "U64", "uint64", 8},
    {Dtype::float64, "F64", "float64", 8},
    {Dtype::complex64, "C64", "complex64", 8},
}};

const DtypeRow& row(Dtype dtype) { return rows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view safetensors_name(Dtype dtype) { return row(dtype).safetensors; }
std::string_view to_string(Dtype dtype) { return row(dtype).name; }
std::size_t element_size(Dtype dtype) { return row(dtype).size; }

std::optional<Dtype> dtype_from_safetensors(std::string_view name) {
  for (const DtypeRow& r : rows) {
    if (r.safetensors == name) return r.dtype;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape) {
  std::int64_t bytes = static_cast<std::int64_t>(element_size(dtype));
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace rondo
