#include "rondo/precision/dtype.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

struct Name {
  const char* name;
  at::ScalarType dtype;
};
constexpr Name kNames[] = {
    {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}, {"float32", at::kFloat}, {"float64", at::kDouble}};

}  // namespace

at::ScalarType parse_float_dtype(std::string_view text, std::string_view what) {
  for (const Name& name : kNames) {
    if (text == name.name) return name.dtype;
  }
  throw UsageError(str(what, " '", text, "' is not one of float16, bfloat16, float32, float64"));
}

std::string float_dtype_name(at::ScalarType dtype) {
  for (const Name& name : kNames) {
    if (dtype == name.dtype) return name.name;
  }
  throw UsageError(str(c10::toString(dtype), " is not a dtype that a model trains in"));
}

bool is_half_width(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

}  // namespace rondo
