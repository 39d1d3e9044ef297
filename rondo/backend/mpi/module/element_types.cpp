#include "rondo/backend/mpi/module/element_types.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::mpi {
namespace {

template <class Half, Reduction kind>
void combine(void* from, void* into, int* length, MPI_Datatype*) {
  const auto* a = static_cast<const Half*>(from);
  auto* b = static_cast<Half*>(into);
  for (int i = 0; i < *length; ++i) {
    const float x = static_cast<float>(a[i]);
    const float y = static_cast<float>(b[i]);
    if constexpr (kind == Reduction::sum) b[i] = static_cast<Half>(y + x);
    if constexpr (kind == Reduction::product) b[i] = static_cast<Half>(y * x);
    if constexpr (kind == Reduction::minimum) b[i] = static_cast<Half>(std::min(x, y));
    if constexpr (kind == Reduction::maximum) b[i] = static_cast<Half>(std::max(x, y));
  }
}

MPI_Datatype make_half_type() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

MPI_Op make_op(MPI_User_function* function) {
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(function, 1, &op);
  return op;
}

template <class Half>
MPI_Op half_op(Reduction kind) {
  static const MPI_Op sum = make_op(combine<Half, Reduction::sum>);
  static const MPI_Op product = make_op(combine<Half, Reduction::product>);
  static const MPI_Op least = make_op(combine<Half, Reduction::minimum>);
  static const MPI_Op largest = make_op(combine<Half, Reduction::maximum>);
  switch (kind) {
    case Reduction::sum:
    case Reduction::average:
      return sum;
    case Reduction::product:
      return product;
    case Reduction::minimum:
      return least;
    case Reduction::maximum:
      return largest;
    default:
      throw UsageError("backend mpi: bitwise reductions are not defined on floating types");
  }
}

}  // namespace

ElementType element_type(at::ScalarType type, bool reduces) {
  static const MPI_Datatype half = make_half_type();
  switch (type) {
    case at::kFloat:
      return {MPI_FLOAT};
    case at::kDouble:
      return {MPI_DOUBLE};
    case at::kHalf:
    case at::kBFloat16:
      return {half};
    case at::kChar:
      return {MPI_INT8_T};
    case at::kByte:
      return {MPI_UINT8_T};
    case at::kShort:
      return {MPI_INT16_T};
    case at::kInt:
      return {MPI_INT32_T};
    case at::kLong:
      return {MPI_INT64_T};
    case at::kComplexFloat:
      return {MPI_FLOAT, 2};
    case at::kComplexDouble:
      return {MPI_DOUBLE, 2};
    default:
      break;
  }
  if (reduces)
    throw UsageError(str("backend mpi: elements of type ", c10::toString(type), " cannot be reduced"));
  return {MPI_BYTE, static_cast<int>(c10::elementSize(type))};
}

MPI_Op reduction(Reduction reduction, at::ScalarType type) {
  if (type == at::kHalf) return half_op<at::Half>(reduction);
  if (type == at::kBFloat16) return half_op<at::BFloat16>(reduction);
  if (reduction == Reduction::average && !c10::isFloatingType(type) && !c10::isComplexType(type))
    throw UsageError("backend mpi: AVG is not defined on integers");
  switch (reduction) {
    case Reduction::sum:
    case Reduction::average:
      return MPI_SUM;
    case Reduction::product:
      return MPI_PROD;
    case Reduction::minimum:
      return MPI_MIN;
    case Reduction::maximum:
      return MPI_MAX;
    case Reduction::bitwise_and:
      return MPI_BAND;
    case Reduction::bitwise_or:
      return MPI_BOR;
    case Reduction::bitwise_xor:
      return MPI_BXOR;
  }
  throw UsageError(str("backend mpi has no reduction ", name(reduction)));
}

}  // namespace rondo::mpi
