#include "rondo/backend/mpi/module/element_types.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::mpi {
namespace {

using Kind = c10d::ReduceOp::RedOpType;

template <class Half, Kind kind>
void combine(void* from, void* into, int* length, MPI_Datatype*) {
  const auto* a = static_cast<const Half*>(from);
  auto* b = static_cast<Half*>(into);
  for (int i = 0; i < *length; ++i) {
    const float x = static_cast<float>(a[i]);
    const float y = static_cast<float>(b[i]);
    if constexpr (kind == Kind::SUM) b[i] = static_cast<Half>(y + x);
    if constexpr (kind == Kind::PRODUCT) b[i] = static_cast<Half>(y * x);
    if constexpr (kind == Kind::MIN) b[i] = static_cast<Half>(std::min(x, y));
    if constexpr (kind == Kind::MAX) b[i] = static_cast<Half>(std::max(x, y));
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
MPI_Op half_op(Kind kind) {
  static const MPI_Op sum = make_op(combine<Half, Kind::SUM>);
  static const MPI_Op product = make_op(combine<Half, Kind::PRODUCT>);
  static const MPI_Op least = make_op(combine<Half, Kind::MIN>);
  static const MPI_Op largest = make_op(combine<Half, Kind::MAX>);
  switch (kind) {
    case Kind::SUM:
    case Kind::AVG:
      return sum;
    case Kind::PRODUCT:
      return product;
    case Kind::MIN:
      return least;
    case Kind::MAX:
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

MPI_Op reduction(const c10d::ReduceOp& op, at::ScalarType type) {
  const auto kind = static_cast<Kind>(op);
  if (type == at::kHalf) return half_op<at::Half>(kind);
  if (type == at::kBFloat16) return half_op<at::BFloat16>(kind);
  if (kind == Kind::AVG && !c10::isFloatingType(type) && !c10::isComplexType(type))
    throw UsageError("backend mpi: AVG is not defined on integers");
  switch (kind) {
    case Kind::SUM:
    case Kind::AVG:
      return MPI_SUM;
    case Kind::PRODUCT:
      return MPI_PROD;
    case Kind::MIN:
      return MPI_MIN;
    case Kind::MAX:
      return MPI_MAX;
    case Kind::BAND:
      return MPI_BAND;
    case Kind::BOR:
      return MPI_BOR;
    case Kind::BXOR:
      return MPI_BXOR;
    default:
      throw UsageError("backend mpi: reductions are SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR only");
  }
}

}  // namespace rondo::mpi
