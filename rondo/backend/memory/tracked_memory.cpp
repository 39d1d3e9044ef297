#include "rondo/backend/memory/tracked_memory.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>

namespace rondo {
namespace {

// The allocator that the tracking one calls. A process has one CPU allocator, so this is global too. Any
// thread may release blocks long after their allocation, so a new source must also release the blocks of the
// previous source.
std::atomic<c10::Allocator*> source{nullptr};
std::atomic<bool> tracking{false};

c10::Allocator& current_source() {
  c10::Allocator* const installed = source.load(std::memory_order_acquire);
  return installed != nullptr ? *installed : *c10::GetDefaultCPUAllocator();
}

void forget_block(const void* block) noexcept {
  any_replica_tracker([&](MemoryTracker& tracker) { return tracker.remove(block); });
}

void release_counted(void* pointer) {
  if (pointer == nullptr) return;
  forget_block(pointer);
  current_source().raw_deallocate(pointer);
}

// Allocates from the source and tracks the blocks. A block's context must be its address (oneDNN asks for raw
// memory), so the bookkeeping is in the tracker's table and not in a header.
class TrackingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr block = current_source().allocate(bytes);
    void* const pointer = block.get();
    // May throw; `block` then releases the memory.
    if (pointer != nullptr) replica_memory_tracker().add(pointer, bytes);
    block.release_context();
    return {pointer, pointer, &release_counted, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_counted; }
  void copy_data(void* destination, const void* from, std::size_t count) const override {
    default_copy_data(destination, from, count);
  }
};

std::mutex& installing() {
  static std::mutex mutex;
  return mutex;
}

// Installs libtorch's allocator. c10 replaces the current allocator by one of equal priority.
void set_cpu_allocator(c10::Allocator& allocator) { c10::SetCPUAllocator(&allocator, /*priority=*/1); }

}  // namespace

void track_cpu_allocations() {
  const std::lock_guard lock(installing());
  if (tracking.load()) return;
  // libtorch keeps the pointer until the process ends.
  set_cpu_allocator(*new TrackingAllocator());
  tracking.store(true);
}

bool tracks_cpu_allocations() { return tracking.load(std::memory_order_relaxed); }

void install_cpu_allocator(c10::Allocator& allocator) {
  const std::lock_guard lock(installing());
  source.store(&allocator, std::memory_order_release);
  if (!tracking.load()) set_cpu_allocator(allocator);
}

void track_block(const void* block, std::uint64_t bytes) {
  if (tracks_cpu_allocations()) replica_memory_tracker().add(block, bytes);
}

void untrack_block(const void* block) noexcept {
  if (tracks_cpu_allocations()) forget_block(block);
}

void label_memory(const at::Tensor& tensor, MemoryLabel label) {
  if (!tracks_cpu_allocations() || !tensor.defined() || !tensor.has_storage()) return;
  label_memory(tensor.storage().data(), label);
}

void label_memory(const void* block, MemoryLabel label) {
  if (tracks_cpu_allocations() && block != nullptr)
    any_replica_tracker([&](MemoryTracker& tracker) { return tracker.relabel(block, label); });
}

void count_part(const at::Tensor& tensor, std::uint64_t bytes) {
  if (tracks_cpu_allocations())
    any_replica_tracker(
        [&](MemoryTracker& tracker) { return tracker.resize(tensor.storage().data(), bytes); });
}

}  // namespace rondo
