#include "rondo/parallel/sharded/buffer_pool.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/memory/tracked_memory.h"

namespace rondo {

c10::DataPtr BufferPool::take(std::size_t bytes, c10::Device device, MemoryLabel label) {
  const auto fits = std::find_if(free_.begin(), free_.end(), [&](const Free& free) {
    return free.bytes == bytes && free.memory.device() == device;
  });
  if (fits == free_.end()) {
    const MemoryScope scope(label.category, label.unit);
    const c10::DeviceGuard guard(device);  // allocators take the current device's memory
    return c10::GetAllocator(device.type())->allocate(bytes);
  }
  c10::DataPtr memory = std::move(fits->memory);
  label_memory(memory.get(), label);
  free_.erase(fits);
  return memory;
}

void BufferPool::give_back(c10::DataPtr memory, std::size_t bytes) {
  // Units of one kind are of one size. Of each size one buffer waits: the next gather takes it.
  const bool has_one = std::any_of(free_.begin(), free_.end(), [&](const Free& free) {
    return free.bytes == bytes && free.memory.device() == memory.device();
  });
  if (has_one || !keeps_) return;
  label_memory(memory.get(), {MemoryCategory::communication});
  free_.push_back({std::move(memory), bytes});
}

at::Tensor BufferPool::take(std::int64_t elements, const at::TensorOptions& options, MemoryLabel label) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, take(bytes, options.device(), label),
                       /*allocator=*/nullptr, /*resizable=*/false);
  return at::empty({0}, options).set_(storage, 0, {elements});
}

void BufferPool::give_back(const at::Tensor& tensor) {
  const std::size_t bytes = tensor.storage().nbytes();
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  give_back(storage.set_data_ptr(c10::DataPtr(nullptr, tensor.device())), bytes);
}

}  // namespace rondo
