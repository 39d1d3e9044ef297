#include "rondo/parallel/sharded/unit_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "rondo/backend/collectives.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/memory/file_memory.h"
#include "rondo/nn/optimizers/optimizer_fields.h"

namespace rondo {
namespace {

// Alignment of tensors in a file: a cache line.
constexpr std::size_t kFileAlignment = 64;

using Holder = std::shared_ptr<FileMemory>;

void let_go(void* holder) { delete static_cast<Holder*>(holder); }

// Returns memory at `offset` in the file; it keeps the file mapped.
c10::DataPtr part_of_file(const Holder& file, std::size_t offset) {
  return {file->data() + offset, new Holder(file), &let_go, c10::Device(c10::kCPU)};
}

bool in_file(const at::Tensor& tensor) { return tensor.storage().data_ptr().get_deleter() == &let_go; }

std::size_t aligned(std::size_t bytes) {
  return (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
}

// Collects the state's tensors. Step counters are no tensors, and tensors of disabled options are undefined.
template <class Kind>
void collect(torch::optim::Optimizer& optimizer, std::vector<at::Tensor>& tensors) {
  for (const auto& [parameter, state] : optimizer.state()) {
    visit_state(static_cast<typename Kind::State&>(*state), [&](const char*, auto& field) {
      if constexpr (std::is_same_v<std::decay_t<decltype(field)>, at::Tensor>) {
        if (field.defined() && field.numel() > 0 && field.is_cpu() && !in_file(field))
          tensors.push_back(field);
      }
    });
  }
}

}  // namespace

OffloadFiles::OffloadFiles(std::filesystem::path directory, int rank)
    : directory_(std::move(directory)), rank_(rank) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  const bool usable =
      std::filesystem::is_directory(directory_) && ::access(directory_.c_str(), W_OK | X_OK) == 0;
  if (!usable) {
    throw UsageError(str("offload: ", directory_.string(), " is no directory in which files can be written",
                         error ? str(" (", error.message(), ")") : ""));
  }
}

std::filesystem::path OffloadFiles::next_file() {
  return directory_ / str("rondo-offload-", ::getpid(), "-rank", rank_, "-", files_++);
}

at::Tensor OffloadFiles::zeros(std::int64_t elements, const at::TensorOptions& options,
                               const std::string& what) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  const auto file = std::make_shared<FileMemory>(next_file(), Bytes{bytes}, what);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, part_of_file(file, 0), /*allocator=*/nullptr,
                       /*resizable=*/false);
  return at::empty({0}, options).set_(storage, 0, {elements});
}

void OffloadFiles::take_over(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  with_optimizer_kind(optimizer, [&](auto kind) { collect<decltype(kind)>(optimizer, tensors); });
  if (!tensors.empty()) move(tensors, "the optimizer's state");
}

void OffloadFiles::move(const std::vector<at::Tensor>& tensors, const std::string& what) {
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += aligned(tensor.storage().nbytes());
  const auto file = std::make_shared<FileMemory>(next_file(), Bytes{bytes}, what);
  std::size_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    c10::DataPtr place = part_of_file(file, offset);
    std::memcpy(place.get(), storage.data(), storage.nbytes());
    offset += aligned(storage.nbytes());
    storage.set_data_ptr_noswap(std::move(place));
  }
}

c10::DataPtr BufferPool::take(std::size_t bytes, c10::Device device, MemoryLabel label) {
  const auto fits = std::find_if(free_.begin(), free_.end(), [&](const Free& free) {
    return free.bytes == bytes && free.memory.device() == device;
  });
  if (fits == free_.end()) {
    const MemoryScope scope(label.category, label.unit);
    const c10::DeviceGuard guard(device);  // allocators use the current device
    return c10::GetAllocator(device.type())->allocate(bytes);
  }
  c10::DataPtr memory = std::move(fits->memory);
  label_memory(memory.get(), label);
  free_.erase(fits);
  return memory;
}

void BufferPool::give_back(c10::DataPtr memory, std::size_t bytes) {
  // Units of one kind have one size. One free buffer per size suffices: the next gather takes it.
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

at::Tensor map_buffer(const Group& group, int owner, std::int64_t elements,
                      const at::TensorOptions& options) {
  ExtendedBackend* const engine = group.extended();
  if (engine == nullptr || !group.traits().parameters_in_place) return {};
  at::Tensor own;
  std::optional<std::uint64_t> place;
  if (group.rank() == owner) {
    own = engine->allocateTensor(elements, options);
    place = engine->publish(own);
  }
  const nlohmann::json told =
      broadcast_object(place ? nlohmann::json(*place) : nlohmann::json(), group, owner);
  if (told.is_null()) return {};
  const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * options.dtype().itemsize();
  const std::uint64_t part = bytes / static_cast<std::uint64_t>(group.size());
  if (group.rank() == owner) {
    count_part(own, bytes - part * static_cast<std::uint64_t>(group.size() - 1));
    return own;
  }
  std::shared_ptr<MemoryCharge> charge;
  if (tracks_cpu_allocations())
    charge = std::make_shared<MemoryCharge>(MemoryCategory::parameters, Bytes{part});
  // Keeps the engine alive, which holds the mapping.
  return at::from_blob(
      engine->published(owner, told.get<std::uint64_t>()), {elements},
      [keeps_mapped = group.backend(), charge](void*) {}, options);
}

}  // namespace rondo
