#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace rondo::sim {

// CPU tensors over the memory of device tensors, for one operator. The CPU's kernel runs on them, and its
// results become tensors of the device. Tensors that share memory have aliases that share it, too.
class HostAliases {
 public:
  // Returns the alias of a device tensor; the same one each time.
  at::Tensor alias_of(const at::Tensor& tensor);

  // Applies the kernel's changes of the aliases themselves: sizes, and memory that the kernel reallocated.
  void write_back();

  // Returns the device's tensor for a result: an argument, a view of an argument's memory, or new memory on
  // `device`.
  at::Tensor on_device(const at::Tensor& result, c10::DeviceIndex device);

 private:
  struct SharedStorage {
    c10::Storage device;
    c10::Storage host;
  };

  const c10::Storage& host_storage(const c10::Storage& device);

  std::vector<SharedStorage> storages_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // device tensor, and its alias
};

}  // namespace rondo::sim
