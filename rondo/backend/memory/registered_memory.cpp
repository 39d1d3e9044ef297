#include "rondo/backend/memory/registered_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"

namespace rondo {
namespace {

// Copying smaller tensors is cheaper than tracking them.
constexpr std::size_t kLeastRegisteredBytes = std::size_t{64} << 10;

// Whether this process was forked from one with an arena. This process's copy of the arena's lists would hand
// out blocks that the parent also hands out.
std::atomic<bool> forked{false};

// Whether the allocator is installed.
std::atomic<bool> installed{false};

const std::shared_ptr<SharedArena>& arena();

void after_fork_in_child() {
  forked.store(true);
  if (arena() != nullptr) arena()->memory()->make_private();
}

std::shared_ptr<SharedArena> make_arena() {
  // Address space only, so the size is generous: blocks of different size classes are never merged.
  const auto physical = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * 4096U;
  try {
    auto made =
        std::make_shared<SharedArena>(Bytes{std::min<std::uint64_t>(physical * 8, std::uint64_t{1} << 42)});
    pthread_atfork(nullptr, nullptr, &after_fork_in_child);
    return made;
  } catch (const Error& e) {
    log::warning("tensors cannot be registered with peers and will be copied: ", e.what());
    return nullptr;
  }
}

// Never destroyed: tensors may be released during the destruction of static objects.
const std::shared_ptr<SharedArena>& arena() {
  static const auto* const instance = new std::shared_ptr<SharedArena>(make_arena());
  return *instance;
}

void release_registered(void* pointer) {
  if (pointer == nullptr) return;
  if (arena()->contains(pointer)) {
    if (!forked.load()) arena()->release(pointer);
  } else {
    c10::GetDefaultCPUAllocator()->raw_deallocate(pointer);
  }
}

class RegisteringAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* pointer = bytes >= kLeastRegisteredBytes && !forked.load() ? arena()->allocate(bytes) : nullptr;
    if (pointer == nullptr && bytes > 0) pointer = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    return {pointer, pointer, &release_registered, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_registered; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
};

}  // namespace

std::shared_ptr<SharedArena> process_arena() { return forked.load() ? nullptr : arena(); }

void register_cpu_allocations() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* wanted = std::getenv("RONDO_REGISTERED_MEMORY");
    if ((wanted != nullptr && std::strcmp(wanted, "0") == 0) || process_arena() == nullptr) return;
    // libtorch keeps the pointer until the process ends.
    install_cpu_allocator(*new RegisteringAllocator());
    installed.store(true);
  });
}

bool registers_allocations() { return installed.load() && !forked.load(); }

at::Tensor empty_registered(at::IntArrayRef sizes, at::TensorOptions options) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  const auto bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  const auto memory = process_arena();
  void* block = memory != nullptr ? memory->allocate(bytes) : nullptr;
  if (block == nullptr) return at::empty(sizes, options);
  try {
    track_block(block, bytes);
  } catch (...) {
    release_registered(block);
    throw;
  }
  return at::from_blob(
      block, sizes,
      [](void* pointer) {
        untrack_block(pointer);
        release_registered(pointer);
      },
      options);
}

bool is_registered(const at::Tensor& tensor) {
  const auto memory = process_arena();
  return memory != nullptr && tensor.device().is_cpu() && memory->contains(tensor.data_ptr());
}

}  // namespace rondo
