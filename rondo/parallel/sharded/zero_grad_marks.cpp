#include "rondo/parallel/sharded/zero_grad_marks.h"

#include <torch/types.h>

namespace rondo {
namespace {

std::uint32_t version_of(const at::Tensor& tensor) { return static_cast<std::uint32_t>(tensor._version()); }

}  // namespace

void ZeroGradMarks::place() {
  marks_.resize(tensors_.size());
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    Mark& mark = marks_[i];
    if (!mark.value.defined()) {
      const at::TensorOptions options = tensors_[i].options().requires_grad(false);
      mark.value = at::zeros({}, options).expand(tensors_[i].sizes()).variable_data();
    }
    tensors_[i].mutable_grad() = mark.value;
    mark.version = version_of(mark.value);
    mark.placed = true;
  }
}

// Detects both forms of zero_grad(): it resets gradients, or writes zeros to them.
bool ZeroGradMarks::is_cleared(std::size_t tensor) const {
  if (tensor >= marks_.size() || !marks_[tensor].placed) return false;
  const Mark& mark = marks_[tensor];
  return !tensors_[tensor].grad().is_same(mark.value) || version_of(mark.value) != mark.version;
}

bool ZeroGradMarks::is_mark(std::size_t tensor) const {
  return tensor < marks_.size() && marks_[tensor].placed &&
         tensors_[tensor].grad().is_same(marks_[tensor].value);
}

void ZeroGradMarks::remove(std::size_t tensor) {
  if (tensor >= marks_.size() || !std::exchange(marks_[tensor].placed, false)) return;
  if (tensors_[tensor].grad().is_same(marks_[tensor].value)) tensors_[tensor].mutable_grad().reset();
}

void ZeroGradMarks::remove() {
  for (std::size_t i = 0; i < marks_.size(); ++i) remove(i);
}

}  // namespace rondo
