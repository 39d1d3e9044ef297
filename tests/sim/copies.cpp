// Operators that CPU kernels cannot implement: copies between host and device, and tensors that share memory.
#include <ATen/ops/copy.h>
#include <torch/library.h>

#include "tests/sim/device.h"
#include "tests/sim/host_alias.h"
#include "tests/sim/launch.h"

namespace rondo::sim {
namespace {

bool is_on_device(const at::Tensor& tensor) { return tensor.device().type() == kSim; }

// Also copies between devices: peers can access each other's memory.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool from_device = is_on_device(source), to_device = is_on_device(target);
  const Copy kind = !from_device ? Copy::host_to_device
                    : to_device  ? Copy::device_to_device
                                 : Copy::device_to_host;
  HostAliases aliases;
  std::vector<Use> uses;
  if (from_device) uses.push_back({source, false});
  if (to_device) uses.push_back({target, true});
  const c10::DeviceIndex device = (from_device ? source : target).device().index();
  on_copy(kind, {"aten::_copy_from", current_stream(device), std::move(uses)},
          kind != Copy::device_to_device && !non_blocking);
  at::Tensor to = to_device ? aliases.alias_of(target) : target;
  to.copy_(from_device ? aliases.alias_of(source) : source);
  return target;
}

at::Tensor& set_storage_offset(at::Tensor& tensor, at::Storage storage, std::int64_t offset,
                               at::IntArrayRef sizes, at::IntArrayRef strides) {
  c10::TensorImpl& changed = *tensor.unsafeGetTensorImpl();
  changed.set_storage_keep_dtype(std::move(storage));
  changed.set_storage_offset(offset);
  if (strides.empty() && !sizes.empty()) {
    changed.set_sizes_contiguous(sizes);
  } else {
    changed.set_sizes_and_strides(sizes, strides);
  }
  return tensor;
}

at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) {
  return set_storage_offset(tensor, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

// Module::to asks whether a parameter can take over another one's data. libtorch's default is no for a CPU
// and a PrivateUse1 tensor, although both are plain tensors.
bool compatible(const at::Tensor& /*tensor*/, const at::Tensor& /*from*/) { return true; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", copy_from);
  library.impl("set_.source_Storage_storage_offset", set_storage_offset);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("_has_compatible_shallow_copy_type", compatible);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", compatible);
}
TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("_has_compatible_shallow_copy_type", compatible); }
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("_has_compatible_shallow_copy_type", compatible);
}

}  // namespace
}  // namespace rondo::sim
