#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <vector>

#include "rondo/memory/scope.h"

namespace rondo {

// Memory for gathered parameters and travelling gradients, used again and again: with a plain allocator each
// pass would touch fresh pages, which costs as much as the copy. One thread.
class BufferPool {
 public:
  // Whether buffers wait for their next use; if not they are freed, so that memory in use is what is needed.
  void keep_free(bool keep) { keeps_ = keep; }

  // At least `bytes`, contents unspecified; `label` says what they are for.
  c10::DataPtr take(std::size_t bytes, c10::Device device, MemoryLabel label);
  void give_back(c10::DataPtr memory, std::size_t bytes);

  // The same as a tensor of one dimension that owns its memory alone; give_back takes it from all its views.
  at::Tensor take(std::int64_t elements, const at::TensorOptions& options, MemoryLabel label);
  void give_back(const at::Tensor& tensor);

 private:
  struct Free {
    c10::DataPtr memory;
    std::size_t bytes;
  };
  std::vector<Free> free_;
  bool keeps_ = true;
};

}  // namespace rondo
