#include "rondo/parallel/sharded/forbidden_access.h"

#include <torch/headeronly/version.h>
#include <torch/types.h>

#include <optional>

namespace rondo {
namespace {

// libtorch before 2.13 can set the flag that makes an access throw, but has no function to clear it.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13

// The arguments of an explicit instantiation may name private members.
template <bool c10::StorageImpl::*Flag>
struct AccessFlag {
  friend bool& throws_on_access(c10::StorageImpl& storage) { return storage.*Flag; }
};
bool& throws_on_access(c10::StorageImpl& storage);
template struct AccessFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

void clear_access_error(c10::StorageImpl& storage) {
  throws_on_access(storage) = false;
  storage.get_extra_meta().custom_data_ptr_error_msg_ = std::nullopt;
}

#else

void clear_access_error(c10::StorageImpl& storage) { storage.clear_data_ptr_access_error_msg_(); }

#endif

}  // namespace

void forbid_access(c10::StorageImpl& storage, const std::string& message) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
}

void permit_access(c10::StorageImpl& storage) { clear_access_error(storage); }

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
    // Has the parameter's shape, but no memory.
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
