#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/collective/dtype.h"

namespace rondo {

// A tensor as the engine needs it: dense, on the CPU, of a type it can reduce, its memory what it holds.
struct DenseTensor {
  // What the engine reads and writes: the caller's tensor itself where that is dense, else a copy.
  at::Tensor data;
  // The caller's tensor, when `data` is a copy; results must be copied back to it.
  at::Tensor copy_of;

  std::byte* bytes() const { return static_cast<std::byte*>(data.data_ptr()); }
  std::uint64_t elements() const { return static_cast<std::uint64_t>(data.numel()); }
  // Copies results back to the caller's tensor, if it was copied.
  void copy_back() const;
};

// `operation` is for messages. Throws UsageError for sparse tensors. With `reads` false the contents need not
// be copied in.
DenseTensor dense(const at::Tensor& tensor, const char* operation, bool reads = true);

// The engine's name of a tensor's element type. Types it cannot reduce are treated as bytes where `reduces`
// is false; throws UsageError where it is true. `elements` is scaled accordingly.
struct ElementType {
  DType type;
  std::uint64_t per_element;  // engine elements per tensor element
};
ElementType element_type(at::ScalarType type, const char* operation, bool reduces);

}  // namespace rondo
