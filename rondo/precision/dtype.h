#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

namespace rondo {

// "float16", "bfloat16", "float32" or "float64" as libtorch's type. Throws UsageError naming `what` and the
// text for anything else.
at::ScalarType parse_float_dtype(std::string_view text, std::string_view what);

// The inverse. `dtype` is one of the four.
std::string float_dtype_name(at::ScalarType dtype);

// Narrower than float32, that is float16 or bfloat16.
bool is_half_width(at::ScalarType dtype);

}  // namespace rondo
