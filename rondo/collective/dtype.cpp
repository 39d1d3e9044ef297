#include "rondo/collective/dtype.h"

namespace rondo {

std::size_t element_bytes(DType type) {
  switch (type) {
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float16:
    case DType::bfloat16:
    case DType::int16:
      return 2;
    case DType::int8:
    case DType::uint8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

const char* name(DType type) {
  switch (type) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::int8:
      return "int8";
    case DType::uint8:
      return "uint8";
    case DType::int16:
      return "int16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::boolean:
      return "bool";
  }
  return "unknown";
}

const char* name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "SUM";
    case Reduction::average:
      return "AVG";
    case Reduction::product:
      return "PRODUCT";
    case Reduction::minimum:
      return "MIN";
    case Reduction::maximum:
      return "MAX";
    case Reduction::bitwise_and:
      return "BAND";
    case Reduction::bitwise_or:
      return "BOR";
    case Reduction::bitwise_xor:
      return "BXOR";
  }
  return "unknown";
}

bool is_floating(DType type) {
  return type == DType::float32 || type == DType::float64 || type == DType::float16 ||
         type == DType::bfloat16;
}

bool supports(DType type, Reduction reduction) {
  switch (reduction) {
    case Reduction::average:
      return is_floating(type);
    case Reduction::bitwise_and:
    case Reduction::bitwise_or:
    case Reduction::bitwise_xor:
      return !is_floating(type);
    default:
      return true;
  }
}

bool averages_integers(DType type, Reduction reduction) {
  return reduction == Reduction::average && !is_floating(type);
}

}  // namespace rondo
