#include "rondo/parallel/sharded/gradient_carriers.h"

#include <torch/types.h>
#include <torch/utils.h>

namespace rondo {

GradientCarriers::GradientCarriers(const std::vector<ModelTensor>& parameters, at::ScalarType dtype)
    : parameters_(parameters),
      carriers_(parameters),
      dtype_(dtype),
      apart_(parameters.front().tensor.scalar_type() != dtype) {
  if (!apart_) return;
  for (ModelTensor& carrier : carriers_) {
    // The shape without the memory.
    const at::TensorOptions options = carrier.tensor.options().dtype(dtype).requires_grad(false);
    carrier.tensor = at::zeros({}, options).expand(carrier.tensor.sizes());
  }
}

void GradientCarriers::take() {
  if (!apart_) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& from = parameters_[i].tensor.mutable_grad();
    if (!from.defined()) continue;
    at::Tensor& to = carriers_[i].tensor.mutable_grad();
    if (to.defined()) {
      to.add_(from);
    } else {
      to = from.detach().to(dtype_);
    }
    from.reset();
  }
}

}  // namespace rondo
