#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "rondo/backend/memory/track_allocations.h"
#include "rondo/memory/tracker.h"

namespace rondo {

// Makes `source` the allocator of libtorch's CPU tensors; its blocks are tracked if tracking is on. `source`
// must live until the process ends, and its raw_deleter() must also release blocks of c10's default CPU
// allocator.
void install_cpu_allocator(c10::Allocator& source);

// If tracking is on, tracks a tensor's block that was not allocated by the CPU allocator.
void track_block(const void* block, std::uint64_t bytes);
// Stops tracking a block of track_block(). Call it before the block is released.
void untrack_block(const void* block) noexcept;

// Labels the memory of `tensor` with its purpose; views share the label. Ignores untracked and undefined
// tensors.
void label_memory(const at::Tensor& tensor, MemoryLabel label);
// Labels the block that begins at `block`.
void label_memory(const void* block, MemoryLabel label);

// Sets the counted size of the memory of `tensor` to `bytes`: this rank's part of memory that ranks share.
void count_part(const at::Tensor& tensor, std::uint64_t bytes);

}  // namespace rondo
