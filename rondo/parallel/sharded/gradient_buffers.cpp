#include "rondo/parallel/sharded/gradient_buffers.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/parallel/sharded/sparse_gradients.h"

namespace rondo {

GradientBuffers::GradientBuffers(const std::vector<ModelTensor>& parameters, at::ScalarType dtype)
    : parameters_(parameters),
      gradient_buffers_(parameters),
      dtype_(dtype),
      apart_(parameters.front().tensor.scalar_type() != dtype) {
  if (!apart_) return;
  for (ModelTensor& buffer : gradient_buffers_) {
    // The shape without the memory.
    const at::TensorOptions options = buffer.tensor.options().dtype(dtype).requires_grad(false);
    buffer.tensor = at::zeros({}, options).expand(buffer.tensor.sizes());
  }
}

void GradientBuffers::take() {
  for (const ModelTensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && gradient.layout() != at::kStrided) throw sparse_gradient_error(parameter.name);
  }
  if (!apart_) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& from = parameters_[i].tensor.mutable_grad();
    if (!from.defined()) continue;
    at::Tensor& to = gradient_buffers_[i].tensor.mutable_grad();
    if (to.defined()) {
      to.add_(from);
    } else {
      to = from.detach().to(dtype_);
    }
    from.reset();
  }
}

}  // namespace rondo
