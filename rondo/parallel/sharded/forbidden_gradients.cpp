#include "rondo/parallel/sharded/forbidden_gradients.h"

#include <torch/types.h>

#include "rondo/parallel/sharded/forbidden_access.h"

namespace rondo {
namespace {

constexpr const char* kReadFromModel =
    "the gradients of a model under this strategy are in prepared->module().parameters(), and a gradient of "
    "the model's own parameters was read. Make the optimizer of prepared->module().parameters(), clip with "
    "rondo::clip_grad_norm_(*prepared, max_norm), and call prepared->step(optimizer). Before another "
    "backward pass call begin_step()";

}  // namespace

ForbiddenGradients::ForbiddenGradients(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    // The shape without the memory.
    const c10::Storage storage(c10::Storage::use_byte_size_t(), parameter.nbytes(),
                               c10::DataPtr(nullptr, parameter.device()), /*allocator=*/nullptr,
                               /*resizable=*/false);
    gradients_.push_back(
        at::empty({0}, parameter.options().requires_grad(false))
            .set_(storage, 0, parameter.sizes(), at::detail::defaultStrides(parameter.sizes())));
    forbid_access(*storage.unsafeGetStorageImpl(), kReadFromModel);
  }
}

void ForbiddenGradients::lay() {
  laid_ = true;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!gradient.defined()) gradient = gradients_[i];
  }
}

bool ForbiddenGradients::cleared() const {
  return laid_ && !gradients_.empty() && !parameters_.front().grad().is_same(gradients_.front());
}

void ForbiddenGradients::lift() {
  if (!std::exchange(laid_, false)) return;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (gradient.is_same(gradients_[i])) gradient.reset();
  }
}

}  // namespace rondo
