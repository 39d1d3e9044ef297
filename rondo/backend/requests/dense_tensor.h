#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/collective/dtype.h"

namespace rondo {

// A tensor in the engine's form: dense, on the CPU, of a dtype that the engine can reduce, without lazy
// conjugation or negation.
struct DenseTensor {
  // The tensor that the engine reads and writes: the caller's tensor itself if it is dense, else a copy.
  at::Tensor data;
  // The caller's tensor, if `data` is a copy; results must be copied back to it.
  at::Tensor copy_of;

  std::byte* bytes() const { return static_cast<std::byte*>(data.data_ptr()); }
  std::uint64_t elements() const { return static_cast<std::uint64_t>(data.numel()); }
  // Copies results back to the caller's tensor, if it was copied.
  void copy_back() const;
};

// Returns whether the engine can use the memory of a strided tensor itself. Conjugation and negation may be
// lazy, without effect on the memory.
inline bool is_dense(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Returns `tensor` in dense form. `operation` is for messages. Throws UsageError for sparse tensors. With
// `reads` false the contents are not copied in.
DenseTensor dense(const at::Tensor& tensor, const char* operation, bool reads = true);

// The engine's type for a tensor's dtype. Dtypes that it cannot reduce are treated as bytes if `reduces` is
// false; throws UsageError if it is true.
struct ElementType {
  DType type;
  std::uint64_t per_element;  // engine elements per tensor element
};
ElementType element_type(at::ScalarType type, const char* operation, bool reduces);

}  // namespace rondo
