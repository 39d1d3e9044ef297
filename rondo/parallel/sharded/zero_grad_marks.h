#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace rondo {

// Marks in `.grad` of the tensors that an optimizer has. They tell whether its zero_grad() was called while
// the gradients that it means lie elsewhere: in the model's own parameters, between the passes of a window.
// A mark is one element that is seen as often as the tensor is large. One thread.
class ZeroGradMarks {
 public:
  // `optimized` are the tensors to mark, whose `.grad` nobody else uses between place() and remove().
  explicit ZeroGradMarks(std::vector<at::Tensor> optimized) : tensors_(std::move(optimized)) {}

  // Marks every tensor.
  void place();
  // Whether zero_grad() was called since the tensor was marked; false where it is not marked.
  bool is_cleared(std::size_t tensor) const;
  // Whether `.grad` of the tensor is its mark, and so no gradient.
  bool is_mark(std::size_t tensor) const;
  // Takes the mark of one tensor away, or those of all.
  void remove(std::size_t tensor);
  void remove();

 private:
  struct Mark {
    at::Tensor value;  // made once
    std::uint32_t version = 0;
    bool placed = false;
  };

  std::vector<at::Tensor> tensors_;
  std::vector<Mark> marks_;  // by tensor; empty before the first place()
};

}  // namespace rondo
