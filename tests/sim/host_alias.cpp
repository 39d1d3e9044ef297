#include "tests/sim/host_alias.h"

#include <ATen/core/TensorBody.h>
#include <c10/core/CPUAllocator.h>

#include "tests/sim/device.h"
#include "tests/sim/memory.h"

namespace rondo::sim {
namespace {

// Returns a tensor over `storage` with the shape of another one.
at::Tensor shaped(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  if (like.is_conj()) tensor._set_conj(true);
  if (like.is_neg()) tensor._set_neg(true);
  return tensor;
}

c10::Storage storage_of(c10::DataPtr memory, std::size_t size, c10::Allocator* allocator) {
  return {c10::Storage::use_byte_size_t(), size, std::move(memory), allocator, /*resizable=*/true};
}

}  // namespace

const c10::Storage& HostAliases::host_storage(const c10::Storage& device) {
  for (const SharedStorage& shared : storages_) {
    if (shared.device.unsafeGetStorageImpl() == device.unsafeGetStorageImpl()) return shared.host;
  }
  c10::DataPtr memory(host_address(device.data()), c10::Device(c10::kCPU));
  storages_.push_back({device, storage_of(std::move(memory), device.nbytes(), c10::GetCPUAllocator())});
  return storages_.back().host;
}

at::Tensor HostAliases::alias_of(const at::Tensor& tensor) {
  for (const auto& [device, host] : tensors_) {
    if (device.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) return host;
  }
  TORCH_CHECK(tensor.layout() == at::kStrided, "simulated accelerator: a tensor of layout ", tensor.layout(),
              "; it has dense tensors only");
  at::Tensor host = shaped(host_storage(tensor.storage()), tensor, c10::DispatchKey::CPU);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
  tensors_.emplace_back(tensor, host);
  return host;
}

void HostAliases::write_back() {
  for (const SharedStorage& shared : storages_) {
    const c10::Storage& host = shared.host;
    if (host.data() == host_address(shared.device.data()) && host.nbytes() == shared.device.nbytes())
      continue;
    c10::StorageImpl& device = *shared.device.unsafeGetStorageImpl();
    if (host.data() != host_address(shared.device.data()))
      device.set_data_ptr_noswap(to_device(host.data(), host.nbytes(), device.device().index()));
    device.set_nbytes(host.nbytes());
  }
  for (const auto& [device, host] : tensors_) {
    c10::TensorImpl& changed = *device.unsafeGetTensorImpl();
    if (device.sizes() == host.sizes() && device.strides() == host.strides()) continue;
    changed.set_storage_offset(host.storage_offset());
    changed.set_sizes_and_strides(host.sizes(), host.strides());
  }
}

at::Tensor HostAliases::on_device(const at::Tensor& result, c10::DeviceIndex device) {
  if (!result.defined()) return result;
  for (const auto& [tensor, host] : tensors_) {
    if (host.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) return tensor;
  }
  for (const SharedStorage& shared : storages_) {
    if (shared.host.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl())
      return shaped(shared.device, result, c10::DispatchKey::PrivateUse1);
  }
  const c10::Storage& made = result.storage();
  return shaped(storage_of(to_device(made.data(), made.nbytes(), device), made.nbytes(), &device_allocator()),
                result, c10::DispatchKey::PrivateUse1);
}

}  // namespace rondo::sim
