#include "rondo/backend/requests/dense_tensor.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void DenseTensor::copy_back() const {
  if (!copy_of.defined()) return;
  // The thread may not be the caller's, and copy_of may be an inference tensor.
  const c10::InferenceMode mode(copy_of.is_inference());
  copy_of.copy_(data);
}

DenseTensor dense(const at::Tensor& tensor, const char* operation, bool reads) {
  if (!tensor.defined()) throw UsageError(str(operation, ": a tensor is undefined"));
  if (tensor.layout() != at::kStrided) {
    throw UsageError(rondo::str(operation, ": the tensor is ", tensor.layout(),
                                "; only dense tensors can be communicated"));
  }
  if (is_dense(tensor)) return {tensor, {}};
  const at::Tensor plain = tensor.detach();
  at::Tensor copy =
      at::empty(plain.sizes(), plain.options().device(at::kCPU).memory_format(at::MemoryFormat::Contiguous));
  if (reads) copy.copy_(plain);
  return {copy, plain};
}

ElementType element_type(at::ScalarType type, const char* operation, bool reduces) {
  switch (type) {
    case at::kFloat:
      return {DType::float32, 1};
    case at::kDouble:
      return {DType::float64, 1};
    case at::kHalf:
      return {DType::float16, 1};
    case at::kBFloat16:
      return {DType::bfloat16, 1};
    case at::kChar:
      return {DType::int8, 1};
    case at::kByte:
      return {DType::uint8, 1};
    case at::kShort:
      return {DType::int16, 1};
    case at::kInt:
      return {DType::int32, 1};
    case at::kLong:
      return {DType::int64, 1};
    case at::kBool:
      return {DType::boolean, 1};
    // The parts of a complex number are summed one by one.
    case at::kComplexFloat:
      return {DType::float32, 2};
    case at::kComplexDouble:
      return {DType::float64, 2};
    default:
      break;
  }
  if (reduces) {
    throw UsageError(str(
        operation, ": elements of type ", c10::toString(type),
        " cannot be reduced; use one of float32, float64, float16, bfloat16, int8 to int64, uint8, bool"));
  }
  return {DType::uint8, c10::elementSize(type)};
}

}  // namespace rondo
