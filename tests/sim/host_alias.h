#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace rondo::sim {

// CPU tensors over the memory of device tensors, for one operator: the CPU's kernel runs on them, and what it
// made becomes tensors of the device. Tensors that share memory have aliases that do.
class HostAliases {
 public:
  // The alias of a device tensor; the same one each time.
  at::Tensor alias_of(const at::Tensor& tensor);

  // Takes over what the kernel changed of the aliases themselves: sizes, and memory that it took for larger
  // ones.
  void write_back();

  // The device's tensor for a result: an argument, a view of an argument's memory, or new memory on `device`.
  at::Tensor on_device(const at::Tensor& result, c10::DeviceIndex device);

 private:
  struct SharedStorage {
    c10::Storage device;
    c10::Storage host;
  };

  const c10::Storage& host_storage(const c10::Storage& device);

  std::vector<SharedStorage> storages_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // on the device, and its alias
};

}  // namespace rondo::sim
