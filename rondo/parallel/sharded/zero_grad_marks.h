#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace rondo {

// Marks in `.grad` of the optimizer's tensors. They detect a call of the optimizer's zero_grad() while the
// actual gradients are elsewhere: in the model's own parameters, between the passes of an accumulation
// window. A mark is one element expanded to the tensor's size. Not thread-safe.
class ZeroGradMarks {
 public:
  // `optimized`: the tensors to mark. No other code may use their `.grad` between place() and remove().
  explicit ZeroGradMarks(std::vector<at::Tensor> optimized) : tensors_(std::move(optimized)) {}

  // Marks every tensor.
  void place();
  // Returns true if zero_grad() was called since the tensor was marked; false if it is not marked.
  bool is_cleared(std::size_t tensor) const;
  // Returns true if `.grad` of the tensor is its mark, and therefore no gradient.
  bool is_mark(std::size_t tensor) const;
  // Removes the mark of one tensor, or all marks.
  void remove(std::size_t tensor);
  void remove();

 private:
  struct Mark {
    at::Tensor value;  // created once
    std::uint32_t version = 0;
    bool placed = false;
  };

  std::vector<at::Tensor> tensors_;
  std::vector<Mark> marks_;  // by tensor; empty before the first place()
};

}  // namespace rondo
